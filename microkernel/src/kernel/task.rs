//! A task: what is constant, what other cores may touch, and what belongs to its core.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ipc::abi::{FaultRecord, TaskState};
use ipc::manifest::{self, Cap, Segment};
use zerocopy::{FromZeros, IntoBytes};

use crate::arch::{Arch, Machine};
use crate::sched::Budget;

/// What all cores may read; the atomics say who writes them.
#[derive(Debug)]
pub struct Task {
    pub index: usize,
    pub core: usize,
    /// Index among the core's tasks.
    pub slot: u8,
    pub manifest: &'static manifest::Task,
    pub caps: &'static [Cap],
    /// The private memory, in the order of the manifest.
    pub segments: &'static [Placed],
    pub root: u64,
    pub token: u64,
    /// The signals that have come. Set by any core (SeqCst), taken by the task's own.
    pub word: AtomicU64,
    /// The mask that the task waits for, 0 while it doesn't. Written by the task's core (SeqCst) before it looks at `word` once
    /// more; read by signallers after they set `word`: one of the two sees the other.
    pub waiting: AtomicU64,
    /// Requests of `control`, set by other cores and taken by the task's own.
    pub request: AtomicU32,
    pub status: Status,
    pub fault: FaultCell,
}

/// What `task_read` shows; written by the task's core only.
#[derive(Debug)]
pub struct Status {
    /// A [`TaskState`]. Release after `fault` was written; pairs with Acquire in `state`.
    state: AtomicU32,
    pub run_ticks: AtomicU64,
    pub switches: AtomicU64,
}

impl Default for Status {
    fn default() -> Self {
        Status {
            state: AtomicU32::new(TaskState::Stopped as u32),
            run_ticks: AtomicU64::new(0),
            switches: AtomicU64::new(0),
        }
    }
}

impl Status {
    pub fn set(&self, state: TaskState) {
        self.state.store(state as u32, Ordering::Release);
    }

    pub fn raw(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    pub fn is(&self, state: TaskState) -> bool {
        self.raw() == state as u32
    }

    pub fn is_stopped(&self) -> bool {
        self.is(TaskState::Stopped) || self.is(TaskState::Faulted)
    }

    #[inline(always)]
    pub fn add(&self, ticks: u64) {
        // One writer, so no read-modify-write is needed.
        self.run_ticks.store(self.run_ticks.load(Ordering::Relaxed) + ticks, Ordering::Relaxed);
        self.switches.store(self.switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A segment in memory.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub segment: &'static Segment,
    pub phys: u64,
    /// The memory is the task's own; false: it is the package itself.
    pub copied: bool,
}

const FAULT_WORDS: usize = size_of::<FaultRecord>() / 8;

/// The last fault. In words, because a supervisor on another core may read it whenever it likes; the words belong
/// together while the task is stopped.
#[derive(Debug)]
pub struct FaultCell([AtomicU64; FAULT_WORDS]);

impl Default for FaultCell {
    fn default() -> Self {
        FaultCell([const { AtomicU64::new(0) }; FAULT_WORDS])
    }
}

impl FaultCell {
    pub fn store(&self, record: &FaultRecord) {
        for (word, bytes) in self.0.iter().zip(record.as_bytes().chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
    }

    pub fn load(&self) -> FaultRecord {
        let mut record = FaultRecord::new_zeroed();
        for (word, bytes) in self.0.iter().zip(record.as_mut_bytes().chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        record
    }
}

impl Task {
    /// Takes those of the mask's signals that have come.
    #[inline(always)]
    pub fn take(&self, mask: u64) -> u64 {
        if self.word.load(Ordering::SeqCst) & mask == 0 {
            return 0;
        }
        self.word.fetch_and(!mask, Ordering::SeqCst) & mask
    }
}

/// What belongs to the task's core.
#[derive(Debug)]
pub struct Local {
    pub context: <Arch as Machine>::Context,
    pub task: &'static Task,
    pub priority: u8,
    /// When to wake it: end of its wait, or of its budget's period.
    pub deadline: u64,
    pub budget: Budget,
    /// SIMD state while another task owns the registers; null without `TASK_SIMD`.
    pub simd: *mut u8,
}
