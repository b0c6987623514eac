//! A suite's result as a picture: one panel of bars for each metric.

use crate::stats::{short, with_unit};
use crate::suite::plan::Better;
use crate::suite::report::{Report, Row};
use anyhow::{Context, Result, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::PathBuf;

/// Draw a suite's JSON as bars, one panel for each metric
///
/// Example: urmqtt bench plot results.json --out docs/performance.svg
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    results: PathBuf,
    #[arg(long, default_value = "performance.svg", value_name = "FILE")]
    out: PathBuf,
}

const COLUMNS: usize = 4;
const WIDTH: u32 = 300;
/// Of a panel: title, a bar for each peer, room below.
const TOP: u32 = 46;
const BAR: u32 = 34;
const BOTTOM: u32 = 18;
const HEAD: u32 = 64;
/// Told apart by people with any kind of sight (Okabe and Ito).
const COLORS: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
];
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);

pub fn run(options: &Options) -> Result<()> {
    let text = std::fs::read_to_string(&options.results)
        .with_context(|| format!("cannot read {}", options.results.display()))?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{} is no result of `urmqtt bench suite`", options.results.display()))?;
    let picture = svg(&report)?;
    std::fs::write(&options.out, picture).with_context(|| format!("cannot write {}", options.out.display()))
}

fn svg(report: &Report) -> Result<String> {
    let rows: Vec<_> = report.table.iter().filter(|row| worth_a_panel(row)).collect();
    ensure!(!rows.is_empty(), "there is nothing to draw");
    let panel = TOP + BAR * report.peers.len() as u32 + BOTTOM;
    let size = (WIDTH * COLUMNS as u32, HEAD + panel * rows.len().div_ceil(COLUMNS) as u32);
    let mut picture = String::new();
    {
        let area = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        area.fill(&WHITE)?;
        let (head, panels) = area.split_vertically(HEAD);
        heading(&head, report)?;
        for (row, panel) in rows.iter().zip(panels.split_evenly((rows.len().div_ceil(COLUMNS), COLUMNS))) {
            draw(&panel, row, report).map_err(|e| anyhow::anyhow!("{}: {e}", row.metric))?;
        }
        area.present()?;
    }
    Ok(picture)
}

/// Not those that say only that all went well.
fn worth_a_panel(row: &Row) -> bool {
    let everything = row.unit == "%" && row.peers.values().all(|s| s.min == 100.0);
    row.better != Better::Neither && row.peers.values().any(|s| s.max > 0.0) && !everything
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn ink(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn heading(area: &Area, report: &Report) -> Result<()> {
    let text = format!(
        "{}. Median of {} rounds, lines from the least to the most; numbers in grey: multiples of {}.",
        report.machine.text(),
        report.rounds,
        report.reference
    );
    area.draw(&Text::new(text, (12, 8), ink(12)))?;
    let mut x = 12;
    for (n, peer) in report.peers.iter().enumerate() {
        let color = COLORS[n % COLORS.len()];
        area.draw(&Rectangle::new([(x, 34), (x + 14, 48)], color.filled()))?;
        let label = format!("{} ({})", peer.name, peer.version);
        let width = 40 + 7 * label.len() as i32;
        area.draw(&Text::new(label, (x + 20, 34), ink(14)))?;
        x += width;
    }
    Ok(())
}

/// Horizontal bars from 0: title above, value behind the bar, a line from min to max.
fn draw(area: &Area, row: &Row, report: &Report) -> Result<()> {
    let (left, width) = (12, WIDTH as i32 - 130);
    let title = row.metric.replace(": ", "\n");
    for (n, line) in title.lines().enumerate() {
        area.draw(&Text::new(line.to_owned(), (left, 6 + 17 * n as i32), ink(if n == 0 { 14 } else { 13 })))?;
    }
    let direction = if row.better == Better::Higher { "longer is better" } else { "shorter is better" };
    let grey = INK.mix(0.6);
    let right =
        TextStyle::from(("sans-serif", 10).into_font()).color(&grey).pos(Pos::new(HPos::Right, VPos::Top));
    area.draw(&Text::new(direction, (WIDTH as i32 - 12, 8), right))?;
    let most = row.peers.values().map(|s| s.max).fold(f64::MIN_POSITIVE, f64::max);
    let at = |value: f64| left + (f64::from(width) * value.max(0.0) / most) as i32;
    for (n, peer) in report.peers.iter().enumerate() {
        let Some(spread) = row.peers.get(&peer.name) else { continue };
        let (y, bar) = ((TOP + BAR * n as u32) as i32, BAR as i32 - 8);
        let color = COLORS[n % COLORS.len()];
        area.draw(&Rectangle::new([(left, y), (at(spread.median), y + bar)], color.filled()))?;
        let middle = y + bar / 2;
        area.draw(&PathElement::new(
            [(at(spread.min), middle), (at(spread.max), middle)],
            INK.stroke_width(1),
        ))?;
        let behind = at(spread.max.max(spread.median)) + 6;
        let label = with_unit(spread.median, &row.unit);
        let label_width = 8 * label.len() as i32;
        area.draw(&Text::new(label, (behind, middle - 7), ink(13)))?;
        if let Some(ratio) = row.ratios.get(&peer.name) {
            let grey = ("sans-serif", 11).into_font().color(&grey);
            area.draw(&Text::new(format!("{} x", short(*ratio)), (behind + label_width, middle - 6), grey))?;
        }
    }
    Ok(())
}
