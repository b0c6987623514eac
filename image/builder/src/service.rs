//! Each service's settings, from the user's configuration, as the bytes that the service reads.

use crate::config::{Config, Level};
use crate::plan::Plan;
use crate::system::Restart;
use ipc::manifest::RegionKind;
use serde::Serialize;

/// Settings of task `i`; none for a service that has none.
pub fn config(plan: &Plan, i: usize, config: &Config) -> Vec<u8> {
    match plan.tasks[i].config.as_str() {
        "supervisor" => bytes(&supervisor(plan, config)),
        "nic" => bytes(&nic::Config::default()),
        "console" => bytes(&console(config)),
        _ => Vec::new(),
    }
}

fn bytes(config: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(config).expect("settings are plain data, and memory doesn't run out")
}

fn supervisor(plan: &Plan, config: &Config) -> supervisor::Config {
    use supervisor::config as to;
    let restart = |r: &Restart| to::Restart {
        delay_ms: r.delay_ms.get() as u32,
        max_delay_ms: r.max_delay_ms.get() as u32,
        limit: r.limit.get() as u32,
        window_s: r.window_s.get() as u32,
    };
    let named = |(index, r): (usize, &crate::plan::Region)| {
        let bound = r.kind != RegionKind::Ram;
        bound.then(|| to::Region { name: r.name.clone(), index: index as u32, pages: r.pages })
    };
    let irq = |(index, q): (usize, &crate::plan::Irq)| to::Irq { name: q.name.clone(), index: index as u32 };
    supervisor::Config {
        development: config.development,
        tasks: plan.tasks.iter().map(|t| to::Task { name: t.name.clone(), restart: restart(&t.restart) }).collect(),
        regions: plan.regions.iter().enumerate().filter_map(named).collect(),
        irqs: plan.irqs.iter().enumerate().map(irq).collect(),
    }
}

fn console(config: &Config) -> console::Config {
    let level = match config.log {
        Level::Error => 0,
        Level::Warn => 1,
        Level::Info => 2,
        Level::Debug => 3,
    };
    console::Config { commands: config.development, level, ..console::Config::default() }
}
