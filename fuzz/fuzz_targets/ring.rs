//! A peer that writes anything anywhere in its half: a link fault or nothing, never more messages than there is room for.
#![no_main]

use ipc::ring::{Desc, Port};
use ipc::testing::{HalfMemory, Kernel};
use std::sync::OnceLock;

struct Halves(HalfMemory, HalfMemory);
// SAFETY: libFuzzer runs one input after the other on one thread.
unsafe impl Sync for Halves {}
// SAFETY: as above.
unsafe impl Send for Halves {}

static HALVES: OnceLock<Halves> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let halves = HALVES.get_or_init(|| Halves(HalfMemory::new(8), HalfMemory::new(8)));
    halves.0.reset();
    halves.1.reset();
    let kernel = Kernel::default();
    let mut a = Port::<Desc, Desc>::new(halves.0.half(), halves.1.half(), kernel.epochs(), 1, 2);
    let mut b = Port::<Desc, Desc>::new(halves.1.half(), halves.0.half(), kernel.epochs(), 2, 1);
    a.poll(true);
    b.poll(true);
    a.poll(true);
    for step in data.chunks_exact(6) {
        let at = (step[0] as usize % 48) * 16 / 4 * 4 + if step[0] >= 128 { 4096 } else { 0 };
        let value = u32::from_le_bytes([step[1], step[2], step[3], step[4]]);
        match step[5] % 6 {
            0 => halves.1.scribble(|word, offset| if offset == at { *word = value }),
            1 => drop(a.send(&Desc { conn: value, ..Desc::default() })),
            2 => drop(a.publish()),
            3 => drop(a.sleep()),
            4 => drop((a.poll(true), b.send(&Desc::default()), b.publish())),
            _ => assert!((0..9).take_while(|_| a.recv().is_some()).count() <= 8),
        }
        assert!(a.room() <= 8);
    }
});
