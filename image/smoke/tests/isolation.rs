//! The probe tries what it may not do: it alone suffers.

use anyhow::{Result, ensure};
use smoke::{Machine, Options, on_both};
use std::time::Duration;

on_both!(every_misdeed_is_stopped, every_misdeed_is_stopped_on_four_cores);

fn every_misdeed_is_stopped(arch: &'static str) -> Result<()> {
    misdeeds(&Options::new(arch).image("probe"))
}

fn every_misdeed_is_stopped_on_four_cores(arch: &'static str) -> Result<()> {
    misdeeds(&Options { smp: 4, ..Options::new(arch).image("probe") })
}

fn misdeeds(options: &Options) -> Result<()> {
    let machine = Machine::start(options)?;
    machine.wait_for("probe: done", Duration::from_secs(120))?;
    let lines = machine.lines();
    let tried = lines.iter().filter(|l| l.contains("probe: trying")).count();
    let survived: Vec<_> = lines.iter().filter(|l| l.contains("SURVIVED")).collect();
    ensure!(survived.is_empty(), "{survived:?}");
    ensure!(tried >= 20, "only {tried} misdeeds were tried");
    let restarted: Vec<_> =
        lines.iter().filter(|l| l.contains(": restarted") && !l.contains("probe: restarted")).collect();
    ensure!(restarted.is_empty(), "others suffered: {restarted:?}");
    Ok(())
}
