//! Rounds to medians, and medians to a table.

use super::machine::Machine;
use super::plan::{Better, Metric, Step};
use crate::outcome::Outcome;
use crate::stats::{Spread, short};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that a run of the suite found out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub date: String,
    pub generator: String,
    pub machine: Machine,
    pub peers: Vec<Version>,
    /// The peer that ratios refer to.
    pub reference: String,
    pub rounds: u32,
    pub seconds: f64,
    pub table: Vec<Row>,
    pub raw: Vec<Raw>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    pub name: String,
    pub version: String,
}

/// One step, one peer, one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Raw {
    pub round: u32,
    pub peer: String,
    pub step: String,
    pub outcome: Option<Outcome>,
    pub error: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub metric: String,
    pub unit: String,
    pub better: Better,
    pub peers: BTreeMap<String, Spread>,
    /// Medians as multiples of the reference's.
    pub ratios: BTreeMap<String, f64>,
}

/// Medians of all metrics that at least one peer has.
pub fn rows(steps: &[Step], raw: &[Raw], reference: &str) -> Vec<Row> {
    let rows = steps.iter().flat_map(|s| s.metrics.iter().map(move |m| row(&s.name, m, raw, reference)));
    rows.filter(|row| !row.peers.is_empty()).collect()
}

fn row(step: &str, metric: &Metric, raw: &[Raw], reference: &str) -> Row {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for one in raw.iter().filter(|one| one.step == step) {
        if let Some(value) = one.outcome.as_ref().and_then(|o| o.get(&metric.figure)) {
            values.entry(&one.peer).or_default().push(value);
        }
    }
    let peers: BTreeMap<_, _> = values
        .into_iter()
        .filter_map(|(peer, values)| Some((peer.to_owned(), Spread::of(&values)?)))
        .collect();
    let ratios = peers
        .iter()
        .filter(|(peer, _)| *peer != reference)
        .filter_map(|(peer, spread)| Some((peer.clone(), spread.ratio(peers.get(reference)?)?)))
        .collect();
    Row { metric: metric.title.clone(), unit: metric.unit.into(), better: metric.better, peers, ratios }
}

impl Report {
    /// Markdown: for a terminal and for a document.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        let header = ["metric".to_owned()].into_iter().chain(self.peers.iter().map(|p| p.name.clone()));
        table.set_header(header);
        for row in &self.table {
            let cells = self.peers.iter().map(|peer| self.cell(row, &peer.name));
            table.add_row([title(row)].into_iter().chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let versions: Vec<_> = self.peers.iter().map(|p| format!("{} ({})", p.name, p.version)).collect();
        format!(
            "{}\n{}\nMedian of {} rounds, {} s each (min-max), ratio to {}.\n\n{table}\n",
            self.machine.text(),
            versions.join(", "),
            self.rounds,
            self.seconds,
            self.reference
        )
    }

    fn cell(&self, row: &Row, peer: &str) -> String {
        let Some(spread) = row.peers.get(peer) else {
            return if self.failed(row, peer) { "failed".into() } else { "-".into() };
        };
        let ratio = row.ratios.get(peer).map_or(String::new(), |r| format!(", {r:.2} x"));
        format!("{} ({}-{}){ratio}", short(spread.median), short(spread.min), short(spread.max))
    }

    fn failed(&self, row: &Row, peer: &str) -> bool {
        self.raw.iter().any(|r| r.peer == peer && r.error.is_some() && row.metric.starts_with(&r.step))
    }

    /// What failed, a line each.
    pub fn errors(&self) -> Vec<String> {
        let line =
            |r: &Raw| r.error.as_ref().map(|e| format!("{}, round {}, {}: {e}", r.peer, r.round, r.step));
        self.raw.iter().filter_map(line).collect()
    }
}

fn title(row: &Row) -> String {
    let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
    let better = match row.better {
        Better::Higher => " (more is better)",
        Better::Lower => "",
        Better::Neither => " (for information)",
    };
    format!("{}{unit}{better}", row.metric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::plan::{QUICK, steps};

    fn raw(peer: &str, round: u32, rate: f64) -> Raw {
        let mut outcome = Outcome::new("throughput");
        outcome.figure("messages", rate, "/s");
        Raw { round, peer: peer.into(), step: "QoS 1, 64 B".into(), outcome: Some(outcome), error: None }
    }

    fn report(raw: Vec<Raw>) -> Report {
        let version = |name: &str| Version { name: name.into(), version: "1".into() };
        Report {
            date: String::new(),
            generator: String::new(),
            machine: Machine::default(),
            peers: vec![version("mosquitto"), version("urmqtt")],
            reference: "mosquitto".into(),
            rounds: 3,
            seconds: 1.0,
            table: rows(&steps(&QUICK), &raw, "mosquitto"),
            raw,
        }
    }

    #[test]
    fn medians_and_ratios_are_by_peer() {
        let all =
            [("mosquitto", 1, 100.0), ("mosquitto", 2, 300.0), ("mosquitto", 3, 200.0), ("urmqtt", 1, 500.0)];
        let report = report(all.map(|(peer, round, rate)| raw(peer, round, rate)).to_vec());
        assert_eq!(report.table.len(), 1, "metrics without a value have no row");
        let row = &report.table[0];
        assert_eq!(row.peers["mosquitto"], Spread { median: 200.0, min: 100.0, max: 300.0 });
        assert_eq!(row.ratios["urmqtt"], 2.5);
        let text = report.text();
        assert!(text.contains("QoS 1, 64 B: messages, /s (more is better)"), "{text}");
        assert!(text.contains("200 (100-300)") && text.contains("500 (500-500), 2.50 x"), "{text}");
    }

    #[test]
    fn a_failure_is_told() {
        let failed = Raw { outcome: None, error: Some("broken".into()), ..raw("urmqtt", 1, 0.0) };
        let report = report(vec![raw("mosquitto", 1, 1.0), failed]);
        assert!(report.text().contains("failed"));
        assert_eq!(report.errors(), ["urmqtt, round 1, QoS 1, 64 B: broken"]);
    }

    #[test]
    fn json_comes_back() {
        let report = report(vec![raw("mosquitto", 1, 1.5)]);
        let text = serde_json::to_string(&report).unwrap();
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(back.table[0].peers, report.table[0].peers);
    }
}
