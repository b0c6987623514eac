//! From the task graph as it was written to a [`Plan`], with every rule of the manifest checked.

use crate::config::{Config, Limits, Pools};
use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::plan::{End, Irq, Link, Map, NamedCap, Plan, Pool, Region, Task};
use crate::system::{self, System};
use crate::value::{Count, Name, bytes};
use ipc::abi::{HEAP_VADDR, MAX_TASKS, PAGE, REGION_VADDR};
use ipc::link::stream::CONTROL_PER_CONNECTION;
use ipc::manifest::{self, Cap, CapKind, RegionKind};
use std::collections::HashMap;
use std::ops::Range;
use toml::Spanned;

/// Bits 62 and 63 of a task's word are the kernel's.
const BITS: u16 = ipc::abi::SIGNAL_FAULT as u16;
/// So that `task:NAME` and `boot.NAME` fit the manifest's 16 bytes.
const TASK_NAME: usize = 11;
const NAME: usize = 16;

/// Checks all of `system`, and resolves it.
pub fn plan(source: &Source, system: &System, config: &Config) -> Result<Plan, Diagnostics> {
    let mut check =
        Check { source, config, plan: Plan::default(), errors: Vec::new(), pools: HashMap::new() };
    check.plan.early_log = system.early_log || config.development;
    check.tasks(&system.tasks);
    // What follows refers to tasks by number.
    if check.errors.is_empty() {
        check.links(&system.links);
        check.regions(&system.regions);
        check.boot_pages();
        check.controls(&system.tasks);
        check.irqs(&system.irqs);
        check.addresses(&system.regions);
    }
    if check.errors.is_empty() { Ok(check.plan) } else { Err(Diagnostics(check.errors)) }
}

struct Check<'s> {
    source: &'s Source,
    config: &'s Config,
    plan: Plan,
    errors: Vec<Diagnostic>,
    /// Pools by `LINK.a`, `LINK.b`.
    pools: HashMap<String, Pool>,
}

impl Check<'_> {
    fn error(&mut self, span: Range<usize>, key: impl Into<String>, message: impl Into<String>) {
        self.errors.push(self.source.error(span, key, message));
    }

    /// Says so when two entries of a table have one name.
    fn unique<'n>(&mut self, table: &str, names: impl Iterator<Item = &'n Spanned<Name>>) {
        let mut seen = HashMap::new();
        for (i, name) in names.enumerate() {
            if let Some(first) = seen.insert(name.get_ref(), i) {
                let message = format!("{table}[{first}] is called {} already", name.get_ref());
                self.error(name.span(), format!("{table}[{i}].name"), message);
            }
        }
    }

    /// The number of the task that a key names.
    fn task(&mut self, name: &Spanned<String>, key: &str) -> Option<u16> {
        let found = self.plan.task(name.get_ref());
        if found.is_none() {
            let known: Vec<&str> = self.plan.tasks.iter().map(|t| &*t.name).collect();
            let message =
                format!("there is no task {:?}; the tasks are {}", name.get_ref(), known.join(", "));
            self.error(name.span(), key, message);
        }
        found
    }

    fn tasks(&mut self, tasks: &[system::Task]) {
        self.unique("task", tasks.iter().map(|t| &t.name));
        match tasks.first() {
            Some(first) if first.name.get_ref().as_str() == "supervisor" => {}
            Some(first) => {
                self.error(first.name.span(), "task[0].name", "the first task must be the supervisor")
            }
            None => self.error(0..0, "task", "the system has no supervisor: it has no tasks"),
        }
        if let Some(extra) = tasks.get(MAX_TASKS) {
            let message = format!("{} tasks; the most are {MAX_TASKS}", tasks.len());
            self.error(extra.name.span(), format!("task[{MAX_TASKS}].name"), message);
        }
        for (i, task) in tasks.iter().enumerate() {
            self.one_task(i, task);
        }
    }

    fn one_task(&mut self, i: usize, task: &system::Task) {
        let name = task.name.get_ref();
        if name.as_str().len() > TASK_NAME {
            let message = format!("{name:?} is too long: a task's name has at most {TASK_NAME} letters");
            self.error(task.name.span(), format!("task[{i}].name"), message);
        }
        match (&task.budget_us, &task.period_us) {
            (Some(budget), Some(period)) if budget.get_ref().get() > period.get_ref().get() => {
                let message =
                    format!("the budget is longer than the period of {} us", period.get_ref().get());
                self.error(budget.span(), format!("task[{i}].budget_us"), message);
            }
            (Some(budget), None) => {
                self.error(budget.span(), format!("task[{i}].budget_us"), "a budget needs `period_us`")
            }
            (None, Some(period)) => {
                self.error(period.span(), format!("task[{i}].period_us"), "a period needs `budget_us`")
            }
            _ => {}
        }
        let us = |v: &Option<Spanned<crate::value::Number<1, 1_000_000>>>| {
            v.as_ref().map_or(0, |v| v.get_ref().get())
        };
        let program = task.program.clone().unwrap_or_else(|| name.clone());
        let mut heap = task.heap.get();
        for (limit, each) in &task.heap_per {
            match self.config.limits.get(limit.get_ref()) {
                Some(n) => heap += n * each.get(),
                None => {
                    let message =
                        format!("no heap depends on {:?}, but on {}", limit.get_ref(), Limits::NAMES);
                    self.error(limit.span(), format!("task[{i}].heap_per"), message);
                }
            }
        }
        let mut caps = Vec::new();
        if i == 0 {
            // Always handle 0.
            caps.push(NamedCap { name: "sys".into(), cap: cap(CapKind::Sys, 0, 0) });
        }
        self.plan.tasks.push(Task {
            name: name.to_string(),
            config: task.config.as_ref().map_or(program.clone(), |c| c.get_ref().clone()),
            program,
            priority: task.priority.get() as u8,
            core: task.core.get() as u16,
            budget_us: us(&task.budget_us) as u32,
            period_us: us(&task.period_us) as u32,
            stack_pages: pages(task.stack.get()),
            heap_pages: pages(heap),
            simd: task.simd,
            serial: task.serial,
            restart: task.restart.clone(),
            neighbours: 0,
            caps,
            ends: Vec::new(),
            maps: Vec::new(),
            bits: 0,
        });
    }

    fn links(&mut self, links: &[system::Link]) {
        self.unique("link", links.iter().map(|l| &l.name));
        for (i, link) in links.iter().enumerate() {
            let Some(b) = self.task(&link.b, &format!("link[{i}].b")) else { continue };
            if link.a.get_ref() == "*" {
                let all: Vec<u16> = (0..self.plan.tasks.len() as u16).filter(|&a| a != b).collect();
                for a in all {
                    self.one_link(i, link, a, b, true);
                }
            } else if let Some(a) = self.task(&link.a, &format!("link[{i}].a")) {
                if a == b {
                    self.error(
                        link.b.span(),
                        format!("link[{i}].b"),
                        "a link joins two tasks, not one with itself",
                    );
                    continue;
                }
                self.one_link(i, link, a, b, false);
            }
        }
    }

    fn one_link(&mut self, i: usize, link: &system::Link, a: u16, b: u16, many: bool) {
        let name = link.name.get_ref().to_string();
        let of_many = format!("{name}.{}", self.plan.tasks[a as usize].name);
        // Unique, and what the regions are called by.
        let id = if many { of_many } else { name.clone() };
        if id.len() + 2 > NAME {
            let message = format!("{id:?} is too long: it has at most {} letters", NAME - 2);
            self.error(link.name.span(), format!("link[{i}].name"), message);
            return;
        }
        let pool_a = self.pool(i, link, &id, 0, [a, b]);
        let pool_b = self.pool(i, link, &id, 1, [a, b]);
        let capacity = self.capacity(i, link, [&pool_a, &pool_b]);
        let half = |owner: u16, side: &str| Region {
            name: format!("{id}/{side}"),
            kind: RegionKind::Ram,
            flags: manifest::REGION_RESET,
            owner,
            pages: pages(ipc::ring::half_bytes(capacity) as u64),
            vaddr: 0,
        };
        let halves = [self.region(half(a, "a")), self.region(half(b, "b"))];
        for (half, writer) in halves.iter().zip([a, b]) {
            self.map(a, *half, None, writer == a);
            self.map(b, *half, None, writer == b);
        }
        let number = self.plan.links.len();
        let key = format!("link[{i}].name");
        let bits = [self.bit(a, &link.name, &key), self.bit(b, &link.name, &key)];
        for (side, (me, peer)) in [(a, b), (b, a)].into_iter().enumerate() {
            let signal = self.cap(me, "", cap(CapKind::Signal, peer, bits[1 - side]));
            let task = &mut self.plan.tasks[me as usize];
            task.neighbours |= 1 << peer;
            task.ends.push(End { link: number, side, signal, bit: bits[side] });
        }
        self.plan.links.push(Link {
            names: [name, id],
            tasks: [a, b],
            connections: link.connections,
            capacity,
            halves,
            pools: [pool_a, pool_b],
        });
    }

    /// The pool of one side, and its maps.
    fn pool(
        &mut self,
        i: usize,
        link: &system::Link,
        id: &str,
        side: usize,
        tasks: [u16; 2],
    ) -> Option<Pool> {
        let (spanned, letter) = if side == 0 { (&link.pool_a, "a") } else { (&link.pool_b, "b") };
        let (spanned, key) = (spanned.as_ref()?, format!("link[{i}].pool_{letter}"));
        let pool = spanned.get_ref();
        if let Some(of) = &pool.of {
            if pool.buffers.is_some() || pool.size.is_some() || pool.dma {
                let message = "a pool that is passed on has the size that its own link gives it";
                self.error(of.span(), format!("{key}.of"), message);
            }
            let Some(&lent) = self.pools.get(of.get_ref()) else {
                let message = format!("no link before this one has a pool {:?}", of.get_ref());
                self.error(of.span(), format!("{key}.of"), message);
                return None;
            };
            self.map(tasks[1 - side], lent.region, Some(of.get_ref()), false);
            return Some(Pool { borrowed: true, ..lent });
        }
        let (Some(buffers), Some(size)) = (&pool.buffers, &pool.size) else {
            self.error(spanned.span(), key, "a pool has `buffers` and `size`, or `of`");
            return None;
        };
        let count = self.count(buffers, &format!("{key}.buffers"))?;
        let bytes = size.get_ref().get();
        if !bytes.is_power_of_two() {
            self.error(size.span(), format!("{key}.size"), format!("{bytes} is no power of two"));
            return None;
        }
        let region = self.region(Region {
            name: format!("{id}.{letter}"),
            kind: if pool.dma { RegionKind::Dma } else { RegionKind::Ram },
            flags: 0,
            owner: tasks[side],
            pages: pages(count as u64 * bytes),
            vaddr: 0,
        });
        let name = format!("{id}.{letter}");
        self.map(tasks[side], region, Some(&name), true);
        self.map(tasks[1 - side], region, Some(&name), false);
        let made = Pool { region, buffers: count, size: bytes as u32, borrowed: false };
        self.pools.insert(name, made);
        Some(made)
    }

    fn count(&mut self, count: &Spanned<Count>, key: &str) -> Option<u32> {
        match count.get_ref() {
            Count::Number(n) => Some(*n),
            Count::Setting(name) => {
                let value = self.config.pools.get(name);
                if value.is_none() {
                    let message = format!("[pools] has no setting {name:?}; it has {}", Pools::NAMES);
                    self.error(count.span(), key, message);
                }
                value
            }
        }
    }

    /// Room for each buffer of both pools, and for what all connections can say at once.
    fn capacity(&mut self, i: usize, link: &system::Link, pools: [&Option<Pool>; 2]) -> u32 {
        let buffers: u64 = pools.iter().map(|p| p.map_or(0, |p| p.buffers as u64)).sum();
        let connections = if link.connections { self.config.limits.connections.get() } else { 0 };
        let needed = buffers + CONTROL_PER_CONNECTION as u64 * connections;
        let Some(given) = &link.capacity else { return needed.max(16).next_power_of_two() as u32 };
        let (value, key) = (given.get_ref().get(), format!("link[{i}].capacity"));
        if !value.is_power_of_two() {
            self.error(given.span(), key, format!("{value} is no power of two"));
            return 2;
        }
        if value < needed {
            let message = format!("{value} elements, but {needed} messages can be under way");
            self.error(given.span(), key, message);
        }
        value as u32
    }

    fn regions(&mut self, regions: &[system::Region]) {
        self.unique("region", regions.iter().map(|r| &r.name));
        for (i, region) in regions.iter().enumerate() {
            let mut maps = Vec::new();
            let mut writer = None;
            for (name, rights) in &region.tasks {
                let Some(task) = self.task(name, &format!("region[{i}].tasks")) else { continue };
                let write = *rights.get_ref() == system::Rights::Write;
                maps.push((task, write));
                match (write, writer) {
                    (true, None) => writer = Some(task),
                    (true, Some(_)) => {
                        let message = "two tasks may write this region; a shared page has one writer";
                        self.error(rights.span(), format!("region[{i}].tasks.{}", name.get_ref()), message);
                    }
                    _ => {}
                }
            }
            let Some(owner) = writer.or(maps.first().map(|&(task, _)| task)) else {
                self.error(region.name.span(), format!("region[{i}].tasks"), "no task maps this region");
                continue;
            };
            let kind = match region.kind {
                system::RegionKind::Ram => RegionKind::Ram,
                system::RegionKind::Dma => RegionKind::Dma,
                system::RegionKind::Device => RegionKind::Device,
                system::RegionKind::Firmware => RegionKind::Firmware,
            };
            if kind == RegionKind::Firmware && writer.is_some() {
                let message = "firmware's tables are only read";
                self.error(region.name.span(), format!("region[{i}].tasks"), message);
            }
            let flag = |on: bool, flag: u16| if on { flag } else { 0 };
            let name = region.name.get_ref().to_string();
            let number = self.region(Region {
                name: name.clone(),
                kind,
                flags: flag(region.boot_only, manifest::REGION_BOOT_ONLY)
                    | flag(region.reset, manifest::REGION_RESET),
                owner,
                pages: pages(region.size.get()),
                vaddr: region.at.as_ref().map_or(0, |at| *at.get_ref()),
            });
            for (task, write) in maps {
                self.map(task, number, Some(&name), write);
            }
        }
    }

    /// One page from the supervisor to each other task.
    fn boot_pages(&mut self) {
        for task in 1..self.plan.tasks.len() as u16 {
            let name = format!("boot.{}", self.plan.tasks[task as usize].name);
            let region = self.region(Region {
                name: name.clone(),
                kind: RegionKind::Ram,
                flags: 0,
                owner: 0,
                pages: 1,
                vaddr: 0,
            });
            self.map(0, region, Some(&name), true);
            self.map(task, region, Some("boot"), false);
        }
    }

    fn controls(&mut self, tasks: &[system::Task]) {
        for (i, task) in tasks.iter().enumerate() {
            for (n, name) in task.controls.iter().enumerate() {
                let objects = if name.get_ref() == "*" {
                    (0..tasks.len() as u16).filter(|&other| other as usize != i).collect()
                } else {
                    Vec::from_iter(self.task(name, &format!("task[{i}].controls[{n}]")))
                };
                for object in objects {
                    let called = format!("task:{}", self.plan.tasks[object as usize].name);
                    self.cap(i as u16, &called, cap(CapKind::TaskCtl, object, 0));
                }
            }
        }
    }

    fn irqs(&mut self, irqs: &[system::Irq]) {
        self.unique("irq", irqs.iter().map(|q| &q.name));
        for (i, irq) in irqs.iter().enumerate() {
            let Some(task) = self.task(&irq.task, &format!("irq[{i}].task")) else { continue };
            let bit = self.bit(task, &irq.name, &format!("irq[{i}].name"));
            let name = irq.name.get_ref().to_string();
            self.cap(task, &name, cap(CapKind::Irq, i as u16, bit));
            self.plan.irqs.push(Irq { name, task, bit });
        }
    }

    /// Places every region, each followed by a page that stays unmapped.
    fn addresses(&mut self, regions: &[system::Region]) {
        let fixed = self.fixed(regions);
        let mut next = REGION_VADDR;
        for i in 0..self.plan.regions.len() {
            if self.plan.regions[i].vaddr != 0 {
                continue;
            }
            let len = span_bytes(&self.plan.regions[i]);
            while let Some(taken) = fixed.iter().find(|f| f.start < next + len && next < f.end) {
                next = taken.end;
            }
            self.plan.regions[i].vaddr = next;
            next += len;
        }
        if next > HEAP_VADDR {
            let message = format!("the regions need {} of addresses", bytes(next - REGION_VADDR));
            self.error(0..0, "region", message);
        }
    }

    /// The addresses that the file fixes, checked.
    fn fixed(&mut self, regions: &[system::Region]) -> Vec<Range<u64>> {
        let mut taken: Vec<(Range<u64>, &Name)> = Vec::new();
        for (i, region) in regions.iter().enumerate() {
            let Some(at) = &region.at else { continue };
            let (start, key) = (*at.get_ref(), format!("region[{i}].at"));
            let range = start..start.saturating_add((pages(region.size.get()) as u64 + 1) * PAGE as u64);
            if !start.is_multiple_of(PAGE as u64) || start < REGION_VADDR || range.end > HEAP_VADDR {
                let message = format!("{start:#x} is no page from {REGION_VADDR:#x} to {HEAP_VADDR:#x}");
                self.error(at.span(), key, message);
            } else if let Some((_, other)) =
                taken.iter().find(|(t, _)| t.start < range.end && range.start < t.end)
            {
                let message =
                    format!("overlaps the region {other} (with the unmapped page that ends a region)");
                self.error(at.span(), key, message);
            }
            taken.push((range, region.name.get_ref()));
        }
        taken.into_iter().map(|(range, _)| range).collect()
    }

    fn region(&mut self, region: Region) -> usize {
        self.plan.regions.push(region);
        self.plan.regions.len() - 1
    }

    fn map(&mut self, task: u16, region: usize, name: Option<&str>, write: bool) {
        let name = name.map(str::to_string);
        let maps = &mut self.plan.tasks[task as usize].maps;
        // A pool that is passed on is there already where its owner passes it.
        if !maps.iter().any(|m| m.region == region) {
            maps.push(Map { region, name, write });
        }
    }

    /// The next free bit of a task's word.
    fn bit(&mut self, task: u16, name: &Spanned<Name>, key: &str) -> u16 {
        let task = &mut self.plan.tasks[task as usize];
        let bit = task.bits;
        task.bits += 1;
        if bit == BITS {
            let message = format!("{} has more than {BITS} links and interrupts", task.name);
            self.error(name.span(), key, message);
        }
        bit
    }

    /// Adds a capability; gives its handle.
    fn cap(&mut self, task: u16, name: &str, cap: Cap) -> u16 {
        let caps = &mut self.plan.tasks[task as usize].caps;
        caps.push(NamedCap { name: name.into(), cap });
        caps.len() as u16 - 1
    }
}

fn cap(kind: CapKind, object: u16, bit: u16) -> Cap {
    Cap { kind: kind as u16, object, bit, reserved: 0 }
}

fn pages(bytes: u64) -> u32 {
    bytes.div_ceil(PAGE as u64) as u32
}

/// Addresses that a region takes, its unmapped page included.
fn span_bytes(region: &Region) -> u64 {
    (region.pages as u64 + 1) * PAGE as u64
}
