//! The probe's neighbour: answers on the link `echo`, and says when it notices anything.

use ipc::ring::{Change, Desc};
use rt::Task;

const BEAT_NS: u64 = 1_000_000_000;

pub fn run(task: &Task) -> ! {
    let secret = task.region("secret").expect("the manifest gives the victim a region of its own");
    let pattern = |i: usize| (i as u8).wrapping_mul(31) ^ 0x5a;
    let bytes = (0..secret.len).map(|i| secret.base.wrapping_add(i));
    for (i, byte) in bytes.clone().enumerate() {
        // SAFETY: a region of this task's own.
        unsafe { byte.write_volatile(pattern(i)) };
    }
    let mut link = task.end::<Desc, Desc>("echo");
    let (mut answered, mut faults, mut beat, mut next) = (0u64, 0u64, 0u64, 0);
    loop {
        if link.poll(true) == Change::Down {
            link.poll(true);
        }
        let was_up = link.end.is_up();
        while let Some(desc) = link.end.recv() {
            answered += link.end.send(&desc) as u64;
        }
        if was_up && let Some(fault) = link.end.port.fault() {
            faults += 1;
            rt::log!(Info, "the neighbour broke the rules: {fault:?}");
        }
        if rt::now_ns() >= next {
            // SAFETY: a region of this task's own.
            let intact =
                bytes.clone().enumerate().all(|(i, byte)| unsafe { byte.read_volatile() } == pattern(i));
            assert!(intact, "somebody wrote the victim's memory");
            rt::log!(Info, "beat {beat}, {answered} answered, {faults} faults");
            beat += 1;
            next = rt::now_ns() + BEAT_NS;
        }
        task.wait(&mut [&mut link], next);
    }
}
