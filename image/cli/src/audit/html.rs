//! A report as one HTML page that needs nothing else.

use super::memory::Mapping;
use super::report::{Part, Report, Service};
use anyhow::{Context, Result};
use builder::value::bytes;
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

const TEMPLATE: &str = include_str!("../../templates/audit.html");
/// What the project claims, and the commands that show it.
const CLAIMS: &str = include_str!("../../../../docs/audit.md");

/// `graph`: the task graph as SVG.
pub fn write(report: &Report, graph: &str, path: &Path) -> Result<()> {
    std::fs::write(path, page(report, graph)?).with_context(|| format!("cannot write {}", path.display()))
}

fn page(report: &Report, graph: &str) -> Result<String> {
    let mut environment = Environment::new();
    // A name that the template gets wrong is an error and not a gap.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("size", |n: u64| bytes(n));
    // The name's ending says what is to be escaped.
    environment.add_template("audit.html", TEMPLATE)?;
    Ok(environment.get_template("audit.html")?.render(context! {
        report,
        graph,
        claims => claims(CLAIMS),
        services => report.services.iter().map(Of::service).collect::<Vec<_>>(),
        parts => report.parts.iter().map(Of::part).collect::<Vec<_>>(),
        licenses => licenses(report),
    })?)
}

/// A service or part with the sums that the page shows.
#[derive(Serialize)]
struct Of<'r, T> {
    #[serde(flatten)]
    itself: &'r T,
    own_lines: usize,
    own_unsafe: usize,
    beneath_lines: usize,
    beneath_unsafe: usize,
    foreign: usize,
    forbids_unsafe: bool,
    rows: Vec<Row<'r>>,
}

impl<'r> Of<'r, Service> {
    fn service(itself: &'r Service) -> Self {
        let (lines, blocks) = (itself.lines(), itself.unsafe_blocks());
        Of {
            own_lines: lines.0,
            own_unsafe: blocks.0,
            beneath_lines: lines.1 + lines.2,
            beneath_unsafe: blocks.1 + blocks.2,
            foreign: itself.foreign().count(),
            forbids_unsafe: itself.forbids_unsafe(),
            rows: itself.mappings.iter().map(Row::new).collect(),
            itself,
        }
    }
}

impl<'r> Of<'r, Part> {
    fn part(itself: &'r Part) -> Self {
        Of {
            own_lines: itself.lines(),
            own_unsafe: itself.unsafe_blocks(),
            beneath_lines: 0,
            beneath_unsafe: 0,
            foreign: itself.foreign(),
            forbids_unsafe: false,
            rows: Vec::new(),
            itself,
        }
    }
}

/// A row of an address space, as texts.
#[derive(Serialize)]
struct Row<'r> {
    address: String,
    size: String,
    name: &'r str,
    kind: String,
    writer: Option<&'r str>,
    rights: String,
    boot_only: bool,
    measured: Option<String>,
}

impl<'r> Row<'r> {
    fn new(m: &'r Mapping) -> Self {
        Row {
            address: format!("{:#x}", m.start),
            size: bytes(m.bytes),
            name: &m.name,
            kind: m.kind.to_string(),
            writer: m.writer.as_deref(),
            rights: m.rights.to_string(),
            boot_only: m.boot_only,
            measured: m.measured.is_some().then(|| m.verdict()),
        }
    }
}

/// Text, or code.
#[derive(Debug, PartialEq, Serialize)]
struct Piece<'d> {
    code: bool,
    text: &'d str,
}

/// The rows of the table in the document, without its head.
fn claims(document: &str) -> Vec<[Vec<Piece<'_>>; 2]> {
    let rows = document.lines().filter_map(|l| l.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    rows.skip(1).map(|(claim, command)| [pieces(claim), pieces(command)]).collect()
}

/// Markdown's backticks.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(i, text)| Piece { code: i % 2 == 1, text }).collect()
}

/// Licences of all other crates in the image, the most frequent first.
fn licenses(report: &Report) -> Vec<(String, usize)> {
    let services = report.services.iter().map(|s| &s.dependencies);
    let all = services.chain(report.parts.iter().map(|p| &p.dependencies)).flatten();
    let crates: BTreeMap<_, _> = all.filter(|c| !c.own).map(|c| (c.id(), c.spdx())).collect();
    let mut counts = BTreeMap::new();
    for license in crates.into_values() {
        *counts.entry(license.unwrap_or_else(|| "in a file".into())).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_has_a_command() {
        let claims = claims(CLAIMS);
        assert!(claims.len() > 10);
        for [claim, command] in &claims {
            assert!(!claim.is_empty() && command.iter().any(|p| p.code), "{}", claim[0].text);
        }
    }

    #[test]
    fn backticks_are_code() {
        let piece = |code, text| Piece { code, text };
        assert_eq!(pieces("a `b c` d"), [piece(false, "a "), piece(true, "b c"), piece(false, " d")]);
    }
}
