//! A report for the terminal: short for all services, every row for one.

use super::memory::Mapping;
use super::report::{Link, Part, Region, Report, Service};
use builder::value::bytes;
use std::fmt;

/// `detail`: every row of every service that the report has; else the kernel and the loaders, too.
pub fn print(report: &Report, detail: bool) {
    if let Some(note) = &report.note {
        println!("{note}\n");
    }
    report.services.iter().for_each(|service| print!("{}", Text { service, detail }));
    if !detail {
        report.parts.iter().for_each(|part| println!("{}", part_line(part)));
        println!();
    }
    if let Some(m) = &report.measurement {
        let verdict = match m.differences.len() {
            0 => "as in the manifest".to_string(),
            n => format!("{n} differences from the manifest"),
        };
        println!("page tables of {}: {} stretches, {} pages, {verdict}", report.arch, m.stretches, m.pages);
        println!("{}", m.audit);
    }
}

fn part_line(part: &Part) -> String {
    let text = part.text_bytes.map_or(String::new(), |b| format!(", {} KiB of code", b.div_ceil(1024)));
    let hash = part.elf.as_ref().map_or(String::new(), |e| format!("\n  sha256        {}", e.sha256));
    let (lines, blocks) = (part.lines(), part.unsafe_blocks());
    format!("{} ({}): {lines} lines, {blocks} unsafe blocks{text}{hash}", part.name, part.role)
}

struct Text<'r> {
    service: &'r Service,
    detail: bool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let s = self.service;
        let budget = match s.period_us {
            0 => String::new(),
            period => format!(", {} of {period} us", s.budget_us),
        };
        writeln!(f, "{} (task {}, priority {}, core {}{budget})", s.name, s.task, s.priority, s.core)?;
        writeln!(f, "  limits        stack {}, heap {}", bytes(s.stack_bytes), bytes(s.heap_bytes))?;
        self.code(f)?;
        list(f, "capabilities", s.capabilities.iter().cloned())?;
        list(f, "links", s.links.iter().map(Link::to_string))?;
        list(f, "regions", s.regions.iter().map(Region::to_string))?;
        let input = |i: &super::inputs::Input| format!("{} from {}: {}; {}", i.on, i.from, i.bytes, i.parser);
        list(f, "inputs", s.inputs.iter().map(input))?;
        self.mappings(f)?;
        self.crates(f)?;
        writeln!(f)
    }
}

impl Text<'_> {
    fn code(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let kib = |n: u64| n.div_ceil(1024);
        match &self.service.code {
            Some(c) => writeln!(
                f,
                "  code          {} KiB text, {} KiB constants, {} KiB data",
                kib(c.text_bytes),
                kib(c.rodata_bytes),
                kib(c.data_bytes)
            )?,
            None => writeln!(f, "  code          not built; `make artifacts` builds it")?,
        }
        let Some(elf) = &self.service.elf else { return Ok(()) };
        let packaged = match elf.packaged {
            Some(true) => ", and the package holds it",
            Some(false) => ", and the package holds another build",
            None => "",
        };
        writeln!(f, "  sha256        {}{packaged}", elf.sha256)?;
        if self.detail {
            writeln!(f, "  rebuild       {}", elf.rebuild)?;
        }
        Ok(())
    }

    fn mappings(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let rows = &self.service.mappings;
        if self.detail {
            return list(f, "mappings", rows.iter().map(Mapping::to_string));
        }
        match rows.len() {
            0 => Ok(()),
            n => writeln!(f, "  mappings      {n}; `urmqtt audit {}` lists them", self.service.name),
        }
    }

    fn crates(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let s = self.service;
        let (itself, beneath, foreign) = s.lines();
        writeln!(f, "  lines         {itself}; {beneath} in own crates beneath, {foreign} in other crates")?;
        let (itself, beneath, foreign) = s.unsafe_blocks();
        let note = if s.forbids_unsafe() { " (its library forbids it)" } else { "" };
        writeln!(
            f,
            "  unsafe blocks {itself}{note}; {beneath} in own crates beneath, {foreign} in other crates"
        )?;
        if self.detail {
            let row = |c: &super::dependencies::Crate| {
                let license = c.license.as_deref().unwrap_or("licence in a file");
                let (lines, blocks) = (c.source.lines, c.source.unsafe_code.blocks);
                format!("{:32} {lines:6} lines, {blocks:4} unsafe, {license}", c.id())
            };
            return list(f, "crates", s.dependencies.iter().map(row));
        }
        let own: Vec<&str> = s.dependencies.iter().filter(|c| c.own).map(|c| &*c.name).collect();
        writeln!(f, "  own crates    {}", own.join(", "))?;
        let others: Vec<&str> = s.foreign().map(|c| &*c.name).collect();
        writeln!(f, "  other crates  {}: {}", others.len(), others.join(", "))
    }
}

/// One item a line, the title before the first.
fn list(f: &mut fmt::Formatter, title: &str, items: impl Iterator<Item = String>) -> fmt::Result {
    let mut title = title;
    for item in items {
        writeln!(f, "  {title:13} {item}")?;
        title = "";
    }
    Ok(())
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} with {}: rings of {}", self.name, self.peer, self.capacity)?;
        let pools = |title: &str, pools: &[String]| match pools {
            [] => String::new(),
            pools => format!("; {title} {}", pools.join(", ")),
        };
        write!(f, "{}{}", pools("writes", &self.writes), pools("reads", &self.reads))
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let rights = if self.writable { "read, write" } else { "read" };
        let phase = if self.boot_only { ", until the seal" } else { "" };
        write!(f, "{} ({}, {}): {rights}{phase}", self.name, self.kind, bytes(self.bytes))
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let size = bytes(self.bytes);
        write!(
            f,
            "{:#014x} {size:>9} {:10} {:16} {}",
            self.start,
            self.rights.to_string(),
            self.name,
            self.kind
        )?;
        if let Some(writer) = &self.writer {
            write!(f, ", written by {writer}")?;
        }
        if self.boot_only {
            f.write_str(", until the seal")?;
        }
        match &self.measured {
            None => Ok(()),
            Some(_) => write!(f, "; measured {}", self.verdict()),
        }
    }
}
