//! The processors that firmware tells of.

use ipc::abi::MAX_CORES;

/// One processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// x86_64: local APIC ID; aarch64: affinity fields of MPIDR.
    pub id: u64,
    /// ACPI processor UID; 0 from a device tree.
    pub uid: u32,
}

/// At most [`MAX_CORES`], each once, the one we run on first. Others stay asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    list: [Cpu; MAX_CORES],
    len: usize,
}

impl Cpus {
    /// With only the processor that we run on.
    pub fn new(boot: u64) -> Self {
        let mut list = [Cpu::default(); MAX_CORES];
        list[0].id = boot;
        Cpus { list, len: 1 }
    }

    pub fn add(&mut self, cpu: Cpu) {
        let known = self.list[..self.len].iter_mut().find(|c| c.id == cpu.id);
        match (known, self.len) {
            (Some(known), _) => known.uid = cpu.uid,
            (None, len) if len < MAX_CORES => {
                self.list[len] = cpu;
                self.len += 1;
            }
            _ => {}
        }
    }

    pub fn all(&self) -> &[Cpu] {
        &self.list[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_processor_is_first_and_nobody_twice() {
        let mut cpus = Cpus::new(2);
        for id in [0, 1, 2, 2, 3] {
            cpus.add(Cpu { id, uid: id as u32 + 10 });
        }
        assert_eq!(
            cpus.all().iter().map(|c| (c.id, c.uid)).collect::<Vec<_>>(),
            [(2, 12), (0, 10), (1, 11), (3, 13)]
        );
        for id in 0..200 {
            cpus.add(Cpu { id, uid: 0 });
        }
        assert_eq!(cpus.all().len(), MAX_CORES);
    }
}
