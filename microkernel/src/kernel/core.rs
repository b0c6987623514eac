//! A core: its tasks, its queue, its timer. Only the core itself touches this.

use core::sync::atomic::Ordering;

use ipc::abi::{NEVER, TaskState};
use ipc::manifest::TASK_COM1;
use ipc::trace::{Kind, Record};

use super::boot_phase::BootPhase;
use super::task::{Local, Task};
use super::{Kernel, control};
use crate::arch::{Arch, Machine, Registers};
use crate::sched::ReadyQueue;
use crate::trace::TraceBuffer;

/// `state` comes first: the per-core pointer of entry code points to both.
#[repr(C)]
#[derive(Debug)]
pub struct Core {
    pub state: <Arch as Machine>::CoreState,
    pub index: usize,
    pub kernel: &'static Kernel,
    pub locals: &'static mut [Local],
    pub ready: ReadyQueue,
    /// The running task.
    pub current: Option<u8>,
    /// The counter at this entry.
    pub now: u64,
    /// Since when `current` runs, and when its budget ends.
    since: u64,
    budget_end: u64,
    /// Slots that wait with a deadline or for a new period, and a time before which none is due.
    timed: u64,
    due: u64,
    /// What the timer is set to.
    armed: u64,
    /// The slot whose SIMD state is in the registers.
    simd_owner: Option<u8>,
    /// The slot whose address space and rights are loaded.
    loaded: Option<u8>,
    pub trace: Option<TraceBuffer>,
    /// The boot core until `Seal`.
    pub boot: Option<BootPhase>,
    sealed: bool,
}

impl Core {
    pub fn new(index: usize, kernel: &'static Kernel, locals: &'static mut [Local]) -> Self {
        Core {
            state: Default::default(),
            index,
            kernel,
            locals,
            ready: ReadyQueue::default(),
            current: None,
            now: 0,
            since: 0,
            budget_end: NEVER,
            timed: 0,
            due: NEVER,
            armed: NEVER,
            simd_owner: None,
            loaded: None,
            trace: None,
            boot: None,
            sealed: false,
        }
    }

    /// The core that an entry happened on.
    ///
    /// # Safety
    /// `state` is the per-core pointer, and the caller is the entry: the only one on this core, with a fresh stack.
    pub unsafe fn enter(state: *mut <Arch as Machine>::CoreState) -> &'static mut Core {
        // SAFETY: `init_core` was given the first field of a `Core` that lives for ever; the last entry's reference
        // died with its stack.
        let core = unsafe { &mut *state.cast::<Core>() };
        core.now = Arch::counter();
        core
    }

    #[inline(always)]
    pub fn local(&mut self, slot: u8) -> &mut Local {
        &mut self.locals[slot as usize]
    }

    #[inline(always)]
    pub fn task(&self, slot: u8) -> &'static Task {
        self.locals[slot as usize].task
    }

    // ---- Signals and waiting ---------------------------------------------------------------------------------------

    /// Sets bits in a task's word, here or on another core, and wakes it if it waits for them.
    #[inline(always)]
    pub fn signal(&mut self, task: &'static Task, bits: u64) {
        // SeqCst: pairs with `wait`, which stores `waiting` and then looks at `word`.
        task.word.fetch_or(bits, Ordering::SeqCst);
        if self.kernel.tracing.load(Ordering::Relaxed) {
            self.record(Kind::Signal, task.index as u64, bits.trailing_zeros() as u64);
        }
        if task.core == self.index {
            self.wake(task);
        } else if task.waiting.load(Ordering::SeqCst) & bits != 0 {
            self.kernel.attend(task);
        }
    }

    /// Makes a task of this core ready, if it waits and one of its signals has come.
    pub fn wake(&mut self, task: &'static Task) {
        let mask = task.waiting.load(Ordering::Relaxed);
        if mask == 0 || !task.status.is(TaskState::Waiting) {
            return;
        }
        let bits = task.take(mask);
        if bits != 0 {
            self.end_wait(task.slot, bits);
        }
    }

    /// Ends the wait of a slot that waits.
    #[inline(always)]
    fn end_wait(&mut self, slot: u8, bits: u64) {
        let now = self.now;
        let local = self.local(slot);
        local.context.set_results(bits, now);
        local.task.waiting.store(0, Ordering::Relaxed);
        self.timed &= !(1 << slot);
        self.make_ready(slot);
    }

    /// Queues a slot that is neither queued nor running.
    #[inline(always)]
    pub fn make_ready(&mut self, slot: u8) {
        let local = &self.locals[slot as usize];
        local.task.status.set(TaskState::Ready);
        self.ready.push_back(slot, local.priority);
    }

    /// The running task waits for signals: returns at once with those that are there, or when the deadline has passed,
    /// else it stops running.
    pub fn wait(&mut self, slot: u8, mask: u64, deadline: u64) {
        let now = self.now;
        let task = self.task(slot);
        let tracing = self.kernel.tracing.load(Ordering::Relaxed);
        if tracing {
            self.record(Kind::WaitIn, mask, deadline);
        }
        let mut bits = task.take(mask);
        if bits == 0 && deadline > now {
            // SeqCst store, then a second look: pairs with `signal` on other cores.
            task.waiting.store(mask, Ordering::SeqCst);
            bits = task.take(mask);
            if bits == 0 {
                self.stop_running(slot, TaskState::Waiting);
                return self.set_deadline(slot, deadline);
            }
            task.waiting.store(0, Ordering::Relaxed);
        }
        self.local(slot).context.set_results(bits, now);
        if tracing {
            self.record(Kind::WaitOut, bits, 0);
        }
    }

    #[inline(always)]
    fn set_deadline(&mut self, slot: u8, deadline: u64) {
        self.local(slot).deadline = deadline;
        if deadline != NEVER {
            self.timed |= 1 << slot;
            self.due = self.due.min(deadline);
        }
    }

    // ---- Running ---------------------------------------------------------------------------------------------------

    /// The running slot gives up the processor.
    #[inline(always)]
    fn stop_running(&mut self, slot: u8, state: TaskState) {
        self.charge();
        self.task(slot).status.set(state);
        self.current = None;
    }

    /// Books the time since `since` on the running task.
    #[inline(always)]
    fn charge(&mut self) {
        if let Some(slot) = self.current {
            let ticks = self.now.saturating_sub(self.since);
            self.since = self.now;
            let local = self.local(slot);
            local.budget.charge(ticks);
            local.task.status.add(ticks);
        }
    }

    /// Takes a slot out of all queues, whatever it was doing.
    pub fn withdraw(&mut self, slot: u8, state: TaskState) {
        if self.current == Some(slot) {
            self.charge();
            self.current = None;
        }
        let priority = self.locals[slot as usize].priority;
        self.ready.remove(slot, priority);
        self.timed &= !(1 << slot);
        let task = self.task(slot);
        task.waiting.store(0, Ordering::Relaxed);
        task.status.set(state);
    }

    /// Forgets the SIMD state of a slot that is being reset.
    pub fn drop_simd(&mut self, slot: u8) {
        if self.simd_owner == Some(slot) {
            self.simd_owner = None;
        }
    }

    /// The timer has fired: wakes what is due, and takes the processor from a task whose budget is used up.
    pub fn tick(&mut self) {
        self.armed = NEVER;
        if self.now >= self.due {
            self.due = NEVER;
            let mut left = self.timed;
            while left != 0 {
                let slot = left.trailing_zeros() as u8;
                left &= left - 1;
                self.expire(slot);
            }
        }
        if let Some(slot) = self.current
            && self.now >= self.budget_end
        {
            self.charge();
            let now = self.now;
            self.budget_end = self.local(slot).budget.begin(now);
            self.deplete(slot);
        }
    }

    fn expire(&mut self, slot: u8) {
        let deadline = self.local(slot).deadline;
        if deadline > self.now {
            self.due = self.due.min(deadline);
            return;
        }
        if self.task(slot).status.is(TaskState::Waiting) {
            // A signal may have come from another core just now.
            let task = self.task(slot);
            let bits = task.take(task.waiting.load(Ordering::Relaxed));
            self.end_wait(slot, bits);
        } else {
            self.timed &= !(1 << slot);
            self.make_ready(slot);
        }
    }

    /// If the running slot has no budget left, it sleeps until its next period.
    fn deplete(&mut self, slot: u8) -> bool {
        let now = self.now;
        let Some(until) = self.local(slot).budget.depleted_until(now) else { return false };
        if self.kernel.tracing.load(Ordering::Relaxed) {
            self.record(Kind::Budget, until - now, 0);
        }
        self.task(slot).status.set(TaskState::Depleted);
        self.current = None;
        self.set_deadline(slot, until);
        true
    }

    /// End of every entry: runs the highest task.
    pub fn dispatch(&mut self) -> ! {
        if let Some(slot) = self.current {
            let local = &self.locals[slot as usize];
            if self.ready.top().is_none_or(|top| top <= local.priority) {
                self.resume(slot)
            }
            // Preempted: goes on before the others of its level.
            local.task.status.set(TaskState::Ready);
            self.ready.push_front(slot, local.priority);
            self.charge();
            self.current = None;
        }
        while let Some(slot) = self.ready.pop() {
            if self.begin(slot) {
                self.resume(slot)
            }
        }
        self.idle()
    }

    /// `slot` becomes the running one, unless its budget is used up.
    #[inline(always)]
    fn begin(&mut self, slot: u8) -> bool {
        let now = self.now;
        self.current = Some(slot);
        if self.kernel.tracing.load(Ordering::Relaxed) {
            let from = self.loaded.map_or(u64::MAX, |s| self.task(s).index as u64);
            self.record(Kind::Switch, from, 0);
        }
        self.since = now;
        self.budget_end = self.local(slot).budget.begin(now);
        self.budget_end > now || !self.deplete(slot)
    }

    fn resume(&mut self, slot: u8) -> ! {
        self.arm(self.due.min(self.budget_end));
        if self.loaded != Some(slot) {
            self.load(slot);
        }
        let context = &raw mut self.local(slot).context;
        // SAFETY: the context lives for ever; `load` put address space and SIMD state in place.
        unsafe { Arch::resume(context) }
    }

    fn idle(&mut self) -> ! {
        self.budget_end = NEVER;
        self.arm(self.due);
        Arch::idle()
    }

    /// Sets the timer if nothing earlier is set: a timer that comes early does no harm, and programming it costs.
    #[inline(always)]
    fn arm(&mut self, due: u64) {
        if due < self.armed {
            self.armed = due;
            Arch::timer_set(due);
        }
    }

    /// Address space, SIMD state and rights of a slot.
    #[inline(always)]
    fn load(&mut self, slot: u8) {
        let local = &self.locals[slot as usize];
        let (task, simd) = (local.task, local.simd);
        // SAFETY: the tables were completed at boot and map the kernel.
        unsafe { Arch::switch_space(task.token) };
        Arch::com1_allow(task.manifest.flags & TASK_COM1 != 0);
        Arch::simd_allow(!simd.is_null());
        if !simd.is_null() && self.simd_owner != Some(slot) {
            if let Some(owner) = self.simd_owner {
                // SAFETY: the owner's area is its own, made at boot.
                unsafe { Arch::simd_save(self.locals[owner as usize].simd) };
            }
            // SAFETY: `control::start` filled the area.
            unsafe { Arch::simd_restore(simd) };
            self.simd_owner = Some(slot);
        }
        self.loaded = Some(slot);
    }

    // ---- Other cores -----------------------------------------------------------------------------------------------

    /// Looks at the tasks that other cores pointed at.
    pub fn look_around(&mut self) {
        self.see_seal();
        let kernel = self.kernel;
        // SeqCst: pairs with `Kernel::attend`.
        let mut bits = kernel.cores[self.index].attention.swap(0, Ordering::SeqCst);
        while bits != 0 {
            let task = &kernel.tasks[bits.trailing_zeros() as usize];
            bits &= bits - 1;
            control::serve(self, task);
            self.wake(task);
        }
    }

    /// The boot phase has ended: page tables are final from now on.
    pub fn see_seal(&mut self) {
        // Acquire: pairs with Release in `seal`; what was written to the page tables before is seen here.
        if !self.sealed && self.kernel.sealed.load(Ordering::Acquire) {
            self.sealed = true;
            Arch::sealed();
        }
    }

    /// Appends to the core's trace, if it has one. Callers look at `Kernel::tracing` first.
    pub fn record(&mut self, kind: Kind, a: u64, b: u64) {
        let running = self.current.map(|slot| self.task(slot).index);
        let epoch = running.map_or(0, |t| self.kernel.epochs[t].load(Ordering::Relaxed));
        let (ticks, core) = (self.now, self.index as u8);
        if let Some(trace) = &mut self.trace {
            let task = running.map_or(u16::MAX, |t| t as u16);
            trace.push(Record { ticks, kind: kind as u8, core, task, epoch, a, b });
        }
    }
}
