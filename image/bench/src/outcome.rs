//! What a workload found out.

use crate::process::Sample;
use crate::stats::{Times, with_unit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// One number. Its name is what the suite's metrics refer to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub workload: String,
    /// What was asked for, and what was negotiated.
    pub settings: BTreeMap<String, String>,
    pub figures: Vec<Figure>,
    /// What went wrong, and how often.
    pub failures: BTreeMap<String, u64>,
}

impl Outcome {
    pub fn new(workload: &str) -> Self {
        Outcome { workload: workload.into(), ..Outcome::default() }
    }

    pub fn setting(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.settings.insert(name.into(), value.to_string());
        self
    }

    pub fn figure(&mut self, name: &str, value: f64, unit: &str) {
        self.figures.push(Figure { name: name.into(), value, unit: unit.into() });
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|f| f.name == name).map(|f| f.value)
    }

    pub fn failed(&mut self, what: &str) {
        *self.failures.entry(what.into()).or_default() += 1;
    }

    /// Microseconds as p50, p99, p99.9 and the longest, in milliseconds.
    pub fn times(&mut self, what: &str, times: &Times) {
        if times.is_empty() {
            return;
        }
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
            let value = times.value_at_quantile(quantile) as f64 / 1000.0;
            self.figure(&format!("{what} {name}"), value, "ms");
        }
    }

    /// The server's processor time between two samples, for each of `count` units.
    pub fn server(
        &mut self,
        before: Option<Sample>,
        after: Option<Sample>,
        count: u64,
        unit: &str,
        over: Duration,
    ) {
        let (Some(before), Some(after)) = (before, after) else { return };
        let cpu = after.cpu.saturating_sub(before.cpu);
        let instructions = before.instructions.zip(after.instructions);
        if let (Some((before, after)), 1..) = (instructions, count) {
            let each = after.saturating_sub(before) as f64 / count as f64;
            self.figure(&format!("instructions per {unit}"), each, "");
        }
        if count > 0 {
            self.figure(&format!("CPU per {unit}"), cpu.as_secs_f64() * 1e6 / count as f64, "us");
        }
        self.figure("server's processors in use", cpu.as_secs_f64() / over.as_secs_f64(), "");
        self.figure("memory after", after.proportional as f64, "B");
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = self.workload.clone();
        for (name, value) in &self.settings {
            let _ = write!(out, "  {name} {value}");
        }
        out.push('\n');
        let width = self.figures.iter().map(|f| f.name.len()).max().unwrap_or(0);
        for f in &self.figures {
            let _ = writeln!(out, "  {:<width$}  {:>10}", f.name, with_unit(f.value, &f.unit));
        }
        for (what, times) in &self.failures {
            let _ = writeln!(out, "  {what}: {times} times");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_per_unit_is_the_difference_of_two_samples() {
        let mut outcome = Outcome::new("test");
        let at = |ms| Some(Sample { cpu: Duration::from_millis(ms), proportional: 7, ..Sample::default() });
        outcome.server(at(100), at(600), 1000, "message", Duration::from_secs(1));
        assert_eq!(outcome.get("CPU per message"), Some(500.0));
        assert_eq!(outcome.get("server's processors in use"), Some(0.5));
        outcome.server(None, at(600), 1000, "handshake", Duration::from_secs(1));
        assert_eq!(outcome.get("CPU per handshake"), None);
    }

    #[test]
    fn text_names_settings_figures_and_failures() {
        let mut outcome = Outcome::new("flood").setting("qos", 0);
        outcome.figure("rate", 123_456.0, "/s");
        outcome.failed("TLS handshake failed");
        assert_eq!(outcome.text(), "flood  qos 0\n  rate     123 k/s\n  TLS handshake failed: 1 times\n");
    }
}
