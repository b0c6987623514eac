//! One misdeed a life: the task's epoch says which. Each must end the task, but for those that only ask whether others suffer.

use crate::{call, memory, pause, processor};
use core::sync::atomic::{AtomicU32, Ordering};
use ipc::abi::EPOCH_VADDR;
use rt::Task;

/// What the misdeed came to, when it returns.
pub enum Outcome {
    /// Nothing stopped it.
    Survived,
    /// It was harmless, and nobody suffered.
    Harmless,
}

pub struct Misdeed {
    pub name: &'static str,
    pub run: fn(&Task) -> Outcome,
}

fn all() -> impl Iterator<Item = &'static Misdeed> {
    memory::ALL.iter().chain(call::ALL).chain(processor::ALL)
}

pub fn try_next(task: &Task) -> ! {
    let number = life(task) as usize - 1;
    let Some(misdeed) = all().nth(number) else {
        rt::log!(Info, "done: {number} misdeeds");
        loop {
            task.wait(&mut [], u64::MAX);
        }
    };
    rt::log!(Info, "trying {}", misdeed.name);
    // The line must be out before this life ends.
    pause(task, 30);
    match (misdeed.run)(task) {
        Outcome::Survived => rt::log!(Error, "SURVIVED {}", misdeed.name),
        Outcome::Harmless => rt::log!(Info, "harmless: {}", misdeed.name),
    }
    pause(task, 30);
    rt::exit_clean()
}

fn life(task: &Task) -> u32 {
    // SAFETY: the kernel maps the epoch page in every task and writes it atomically.
    let epochs = unsafe { &*(EPOCH_VADDR as *const [AtomicU32; ipc::abi::MAX_TASKS]) };
    epochs[task.info.header.task as usize].load(Ordering::Relaxed)
}
