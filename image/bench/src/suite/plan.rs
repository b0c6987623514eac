//! What the suite measures: workloads, and which of their figures are metrics.

use crate::workload::{Workload, fanout, handshakes, idle, latency, reconnect, throughput};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
    /// Says something about the run, not about who is better.
    Neither,
}

/// A figure of a step's outcome, under the name that the table gives it.
#[derive(Clone, Debug)]
pub struct Metric {
    pub title: String,
    pub figure: String,
    pub unit: &'static str,
    pub better: Better,
}

pub struct Step {
    pub name: String,
    /// None: what starting the broker found out.
    pub workload: Option<Box<dyn Workload>>,
    pub metrics: Vec<Metric>,
}

impl Step {
    fn new(name: impl Into<String>, workload: impl Workload + 'static) -> Self {
        Step { name: name.into(), workload: Some(Box::new(workload)), metrics: Vec::new() }
    }

    fn metric(mut self, title: &str, figure: &str, unit: &'static str, better: Better) -> Self {
        let title = format!("{}{}{title}", self.name, if title.is_empty() { "" } else { ": " });
        self.metrics.push(Metric { title, figure: figure.into(), unit, better });
        self
    }
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub seconds: f64,
    pub rounds: u32,
    /// Levels of idle connections.
    pub idle: &'static [u32],
    pub storm: u32,
}

pub const QUICK: Size = Size { seconds: 1.0, rounds: 2, idle: &[1000], storm: 1000 };
pub const NORMAL: Size = Size { seconds: 5.0, rounds: 5, idle: &[1000, 10_000], storm: 3000 };
/// With 50,000 idle connections, which a broker of one process can only hold where it may open so many files.
pub const LARGE: Size = Size { idle: &[1000, 10_000, 50_000], ..NORMAL };

impl Size {
    /// Devices for which certificates are needed.
    pub fn devices(&self) -> u32 {
        self.idle.iter().copied().max().unwrap_or(0).max(self.storm)
    }
}

/// The steps in the order in which a fresh broker meets them: memory first, since no broker gives back what a storm took.
pub fn steps(size: &Size) -> Vec<Step> {
    let mut steps = vec![start(), idle(size), handshakes(size, false), handshakes(size, true)];
    for qos in [0, 1] {
        for (payload, text) in [(64, "64 B"), (1024, "1 KiB")] {
            steps.push(throughput(size, qos, payload, text));
        }
    }
    steps.extend([100, 1000].map(|subscribers| fanout(size, subscribers)));
    steps.push(latency(size));
    steps.push(storm(size));
    steps
}

fn start() -> Step {
    Step { name: "start".into(), workload: None, metrics: Vec::new() }
        .metric("time to the first CONNACK", "time to the first CONNACK", "s", Better::Lower)
        .metric("size", "size", "B", Better::Lower)
        .metric("instructions", "instructions to the first CONNACK", "", Better::Lower)
}

fn idle(size: &Size) -> Step {
    let options = idle::Options {
        count: size.idle.to_vec(),
        parallel: 32,
        subscribe: false,
        hold: 1.0,
        first: 1,
        serve: false,
    };
    let mut step = Step::new("idle", options).metric(
        "memory before any connection",
        "memory before",
        "B",
        Better::Lower,
    );
    for level in size.idle {
        let title = format!("bytes per connection at {level}");
        step = step.metric(&title, &format!("memory per connection at {level}"), "B", Better::Lower);
        let title = format!("memory at {level}");
        step = step.metric(&title, &format!("memory at {level}"), "B", Better::Lower);
    }
    step
}

fn handshakes(size: &Size, resume: bool) -> Step {
    let options = handshakes::Options { workers: 8, devices: 8, seconds: size.seconds, resume };
    let step = Step::new(if resume { "resumed handshake" } else { "full handshake" }, options)
        .metric("rate", "handshakes", "/s", Better::Higher)
        .metric("server CPU", "CPU per handshake", "us", Better::Lower);
    let step = step.metric("instructions", "instructions per handshake", "", Better::Lower);
    if resume { step.metric("really resumed", "really resumed", "%", Better::Higher) } else { step }
}

fn throughput(size: &Size, qos: u8, payload: usize, text: &str) -> Step {
    let options =
        throughput::Options { pairs: 10, qos, payload, window: 50, batch: None, seconds: size.seconds };
    Step::new(format!("QoS {qos}, {text}"), options)
        .metric("messages", "messages", "/s", Better::Higher)
        .metric("server CPU per message", "CPU per message", "us", Better::Lower)
        .metric("instructions per message", "instructions per message", "", Better::Lower)
}

fn fanout(size: &Size, subscribers: u32) -> Step {
    let options = fanout::Options { subscribers, qos: 1, payload: 64, window: 10, seconds: size.seconds };
    Step::new(format!("fan-out to {subscribers}, QoS 1"), options)
        .metric("deliveries", "deliveries", "/s", Better::Higher)
        .metric("server CPU per delivery", "CPU per delivery", "us", Better::Lower)
}

fn latency(size: &Size) -> Step {
    let options = latency::Options { pairs: 10, rate: 500.0, qos: 1, payload: 64, seconds: size.seconds };
    Step::new("latency, QoS 1, 500/s", options)
        .metric("p50", "latency p50", "ms", Better::Lower)
        .metric("p99", "latency p99", "ms", Better::Lower)
        .metric("lost", "messages lost", "", Better::Lower)
}

fn storm(size: &Size) -> Step {
    let options = reconnect::Options { devices: size.storm, admitted: 500.0, factor: 4.0, limit: 60.0 };
    Step::new(format!("storm of {} at 2,000/s", size.storm), options)
        .metric("until all are connected", "time until all are connected", "s", Better::Lower)
        .metric("connected", "connected", "%", Better::Higher)
        .metric("failed tries", "failed tries", "", Better::Neither)
        .metric("wait p99", "wait p99", "ms", Better::Lower)
        .metric("server CPU per connection", "CPU per connection", "us", Better::Lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_unique() {
        for size in [QUICK, NORMAL, LARGE] {
            let mut titles: Vec<_> =
                steps(&size).into_iter().flat_map(|s| s.metrics).map(|m| m.title).collect();
            let count = titles.len();
            titles.sort();
            titles.dedup();
            assert_eq!(titles.len(), count);
        }
    }

    #[test]
    fn there_are_certificates_for_all_devices() {
        assert_eq!((QUICK.devices(), NORMAL.devices(), LARGE.devices()), (1000, 10_000, 50_000));
    }
}
