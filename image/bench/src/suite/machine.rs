//! The machine that a result was measured on.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub processors: usize,
    pub memory_mib: u64,
    pub kernel: String,
    /// Load average over one minute when the suite began: above 0 something else was running.
    pub load: f32,
}

impl Machine {
    pub fn here() -> Self {
        use procfs::{CpuInfo, Current, LoadAverage, Meminfo};
        let cpu = CpuInfo::current().ok();
        let name = cpu.as_ref().and_then(|c| c.model_name(0)).unwrap_or("unknown").to_owned();
        let uname = rustix::system::uname();
        Machine {
            cpu: name,
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: Meminfo::current().map_or(0, |m| m.mem_total >> 20),
            kernel: uname.release().to_string_lossy().into_owned(),
            load: LoadAverage::current().map_or(0.0, |l| l.one),
        }
    }

    pub fn text(&self) -> String {
        let Machine { cpu, processors, memory_mib, kernel, load } = self;
        format!(
            "{cpu}, {processors} processors shared with the load generator, {memory_mib} MiB, Linux {kernel}, load {load:.1} before"
        )
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_has_a_processor() {
        let machine = super::Machine::here();
        assert!(machine.processors > 0 && machine.memory_mib > 0 && !machine.kernel.is_empty());
    }
}
