//! The task's view of itself: configuration, links, regions, capabilities, and waiting.

use crate::platform;
use alloc::vec;
use ipc::abi::{EPOCH_VADDR, MAX_TASKS};
use ipc::boot::Boot;
use ipc::link::End;
use ipc::manifest::{self, info};
use ipc::pool::{Loans, OwnPool, PoolView};
use ipc::ring::{Change, Epochs, Half, Message, Port};

/// Everything that the manifest gives the task.
pub struct Task {
    pub info: info::Info<'static>,
}

/// A mapped region beside the links.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub base: *mut u8,
    pub len: usize,
    /// Index in the system manifest.
    pub index: u32,
    pub writable: bool,
}

/// What [`Task::wait`] does with a link, whatever its messages are.
pub trait Bell {
    /// Publishes; the handle to signal, if the peer sleeps.
    fn flush(&mut self) -> Option<u16>;
    /// True: nothing has come.
    fn sleep(&mut self) -> bool;
}

/// An end of a link together with the handle that wakes the peer.
pub struct Link<Out, In> {
    pub end: End<'static, Out, In>,
    signal: u16,
}

impl<Out: Message, In: Message> Bell for Link<Out, In> {
    fn flush(&mut self) -> Option<u16> {
        self.end.flush().then_some(self.signal)
    }
    fn sleep(&mut self) -> bool {
        self.end.sleep()
    }
}

impl<Out: Message, In: Message> Link<Out, In> {
    /// [`End::poll`].
    pub fn poll(&mut self, ready: bool) -> Change {
        self.end.poll(ready)
    }
}

impl Task {
    /// The service's configuration from the signed package.
    pub fn config<T: serde::de::DeserializeOwned>(&self) -> T {
        postcard::from_bytes(self.info.config)
            .expect("configuration does not fit the service: rebuild the image")
    }

    /// The end of the link `name`. Each link once.
    pub fn end<Out: Message, In: Message>(&self, name: &str) -> Link<Out, In> {
        self.find_link(name).unwrap_or_else(|| panic!("the manifest gives this task no link {name}"))
    }

    pub(crate) fn find_link<Out: Message, In: Message>(&self, name: &str) -> Option<Link<Out, In>> {
        self.info.links.iter().find(|l| manifest::name(&l.name) == name).map(|l| self.attach(l))
    }

    /// Names of all links, in manifest order.
    pub fn link_names(&self) -> impl Iterator<Item = &'static str> {
        self.info.links.iter().map(|l| manifest::name(&l.name))
    }

    fn attach<Out: Message, In: Message>(&self, link: &'static info::Link) -> Link<Out, In> {
        // SAFETY: the builder maps these halves with this capacity, ours writable, the peer's read-only, for the task's life.
        let (mine, theirs) = unsafe {
            (
                Half::from_raw(link.mine as *const u8, link.capacity),
                Half::from_raw(link.theirs as *const u8, link.capacity),
            )
        };
        let port = Port::new(mine, theirs, epochs(), self.info.header.task, link.peer);
        let end =
            End::new(port, own_pool(&link.pool_mine), view(&link.pool_theirs), loans(&link.pool_theirs));
        Link { end, signal: link.signal }
    }

    pub fn region(&self, name: &str) -> Option<Region> {
        let r = self.info.regions.iter().find(|r| manifest::name(&r.name) == name)?;
        let writable = r.rights & manifest::WRITE != 0;
        Some(Region { base: r.vaddr as *mut u8, len: r.len as usize, index: r.index, writable })
    }

    /// The handle of a capability by its name.
    pub fn cap(&self, name: &str) -> Option<info::NamedCap> {
        self.info.caps.iter().find(|c| manifest::name(&c.name) == name).copied()
    }

    /// The supervisor's page for this task.
    pub fn boot(&self) -> Option<&'static Boot> {
        let region = self.region("boot")?;
        // SAFETY: one page, read-only here; the supervisor writes it only while this task is stopped.
        let boot = unsafe { &*region.base.cast::<Boot>() };
        (boot.magic == ipc::boot::MAGIC).then_some(boot)
    }

    /// Publishes all links, then waits for a signal until `deadline_ns` (nanoseconds since boot, `u64::MAX`: for ever).
    /// Returns the bits; 0 when a link has something already or the time came.
    pub fn wait(&self, links: &mut [&mut dyn Bell], deadline_ns: u64) -> u64 {
        let (idle, last) = self.publish(links);
        if !idle {
            ring(last);
            return 0;
        }
        let deadline = crate::ticks_from_ns(deadline_ns);
        match last {
            Some(cap) => platform::signal_wait(cap, !0, deadline).0,
            None => platform::wait(!0, deadline).0,
        }
    }

    /// What [`Task::wait`] does before it waits, for a task that waits for more than signals. True: nothing has come.
    pub fn settle(&self, links: &mut [&mut dyn Bell]) -> bool {
        let (idle, last) = self.publish(links);
        ring(last);
        idle
    }

    /// Publishes all links and asks each for a wake-up. Returns whether nothing has come, and the last signal that is due.
    fn publish(&self, links: &mut [&mut dyn Bell]) -> (bool, Option<u16>) {
        crate::log::with_bell(|log| ring(log.flush()));
        let mut last = None;
        for link in links.iter_mut() {
            ring(core::mem::replace(&mut last, link.flush()));
        }
        // Every link is asked, so that each one's wish to be woken stands before we wait.
        let idle = links.iter_mut().fold(true, |idle, l| l.sleep() & idle);
        (crate::log::with_bell(|log| log.sleep()).unwrap_or(true) & idle, last)
    }
}

fn ring(cap: Option<u16>) {
    if let Some(cap) = cap {
        platform::signal(cap);
    }
}

/// The kernel's epoch page.
pub(crate) fn epochs() -> Epochs<'static> {
    // SAFETY: mapped read-only in every task, written by the kernel with atomic stores only.
    Epochs::new(unsafe { &*(EPOCH_VADDR as *const [core::sync::atomic::AtomicU32; MAX_TASKS]) })
}

fn own_pool(desc: &info::PoolDesc) -> OwnPool<'static> {
    if desc.buffers == 0 {
        return OwnPool::empty();
    }
    let (state, free) = (vec![0; desc.buffers as usize].leak(), vec![0; desc.buffers as usize].leak());
    // SAFETY: the builder maps this pool writable here, and each link is attached once.
    unsafe { OwnPool::from_raw(desc.vaddr as *mut u8, desc.size as usize, state, free) }
}

fn view(desc: &info::PoolDesc) -> PoolView<'static> {
    if desc.buffers == 0 {
        return PoolView::empty();
    }
    // SAFETY: the builder maps this pool read-only here for the task's life.
    unsafe { PoolView::from_raw(desc.vaddr as *const u8, desc.buffers, desc.size) }
}

fn loans(desc: &info::PoolDesc) -> Loans<'static> {
    Loans::new(vec![0; desc.buffers.div_ceil(64) as usize].leak(), desc.buffers)
}
