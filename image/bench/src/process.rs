//! Processor time and memory of the server's processes, from /proc.

use anyhow::{Context, Result, ensure};
use procfs::process::{Process, all_processes};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which processes are the server.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Options {
    /// The server's process; its children count too. May be repeated
    #[arg(long = "pid", value_name = "PID", help_heading = "Server processes")]
    pub pids: Vec<i32>,
    /// All processes of this name, with their children
    #[arg(long, value_name = "NAME", help_heading = "Server processes")]
    pub pids_of: Option<String>,
    /// A file in which QEMU's counting plugin (image/smoke/src/icount.c) counts the guest's instructions
    #[arg(long, value_name = "FILE", help_heading = "Server processes")]
    pub instructions: Option<PathBuf>,
}

/// What the server had used at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub cpu: Duration,
    /// Resident memory; pages that processes share count for each.
    pub resident: u64,
    /// Proportional memory; a page that n processes share counts 1/n for each. Resident where the system doesn't tell.
    pub proportional: u64,
    pub processes: usize,
    /// Of a guest, where they are counted.
    pub instructions: Option<u64>,
}

impl Options {
    pub fn of(pid: u32) -> Self {
        Options { pids: vec![pid as i32], ..Options::default() }
    }

    /// The sum over all processes; nothing when none was named.
    pub fn sample(&self) -> Result<Option<Sample>> {
        if self.pids.is_empty() && self.pids_of.is_none() {
            return Ok(None);
        }
        let found = self.processes()?;
        ensure!(!found.is_empty(), "the server's process is gone");
        let mut sum = Sample { processes: found.len(), ..Sample::default() };
        for process in &found {
            // One that ended meanwhile counts in its parent's time.
            let _ = add(process, &mut sum);
        }
        sum.instructions = self.instructions.as_deref().map(counted).transpose()?;
        Ok(Some(sum))
    }

    /// The named ones and their descendants.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let mut rest: Vec<_> = all_processes()
            .context("cannot read /proc")?
            .filter_map(|process| {
                let process = process.ok()?;
                let stat = process.stat().ok()?;
                Some((process, stat.ppid, stat.comm))
            })
            .collect();
        let mut known: HashSet<i32> = self.pids.iter().copied().collect();
        let by_name = |comm: &str| self.pids_of.as_deref() == Some(comm);
        let mut found = Vec::new();
        // Each round finds the children of the one before.
        loop {
            let (new, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(process, parent, comm)| {
                known.contains(&process.pid) || known.contains(parent) || by_name(comm)
            });
            if new.is_empty() {
                return Ok(found);
            }
            known.extend(new.iter().map(|(process, ..)| process.pid));
            found.extend(new.into_iter().map(|(process, ..)| process));
            rest = others;
        }
    }
}

fn counted(file: &Path) -> Result<u64> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let first = bytes.first_chunk().with_context(|| format!("{} is too short", file.display()))?;
    Ok(u64::from_ne_bytes(*first))
}

fn add(process: &Process, sum: &mut Sample) -> Result<()> {
    let stat = process.stat()?;
    // With the time of children that ended and were waited for: a restarted task's work isn't lost.
    let ticks = stat.utime as i64 + stat.stime as i64 + stat.cutime + stat.cstime;
    sum.cpu += Duration::from_secs_f64(ticks.max(0) as f64 / procfs::ticks_per_second() as f64);
    let resident = stat.rss * procfs::page_size();
    sum.resident += resident;
    sum.proportional += proportional(process).unwrap_or(resident);
    Ok(())
}

fn proportional(process: &Process) -> Option<u64> {
    let rollup = process.smaps_rollup().ok()?;
    rollup.memory_map_rollup.iter().map(|map| map.extension.map.get("Pss").copied()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_the_time_of_a_child_counts() {
        let own = Options::of(std::process::id());
        let before = own.sample().unwrap().expect("a process was named");
        assert!(before.resident > 100_000 && before.proportional > 100_000);
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        assert_eq!(own.processes().unwrap().len(), before.processes + 1);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn nobody_named_is_no_sample_and_a_missing_process_an_error() {
        assert!(Options::default().sample().unwrap().is_none());
        assert!(Options { pids: vec![i32::MAX], ..Options::default() }.sample().is_err());
    }
}
