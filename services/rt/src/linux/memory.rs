//! The task's address space, put together as the manifest says.

use crate::once::Global;
use core::ffi::c_void;
use ipc::hosted::{Header, NONE, START, Start};
use ipc::manifest::WRITE;
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use zerocopy::FromBytes;

static DOCUMENT: Global<Start<'static>> = Global::new();

/// The document that `urmqtt host` wrote.
pub(super) fn start() -> Start<'static> {
    DOCUMENT.with(|d| *d).expect("set by the first line of the task")
}

/// Maps the start document and all that it names.
pub fn map() {
    let page = ipc::abi::PAGE;
    // SAFETY: a fresh mapping, nothing else is at its address.
    let first = unsafe { place(None, page, START, false) };
    // SAFETY: mapped just now, one page, never unmapped; the host has sealed the document against writes.
    let bytes = unsafe { core::slice::from_raw_parts(first.cast::<u8>(), page) };
    let len = Header::read_from_prefix(bytes).map_or(0, |(header, _)| header.len as usize);
    // SAFETY: as above, now with the length that the document states.
    let whole = unsafe { core::slice::from_raw_parts(place(None, len, START, false).cast::<u8>(), len) };
    let Ok(start) = Start::parse(whole) else { give_up("started by something else than `urmqtt host`") };
    for map in start.maps {
        // SAFETY: the builder's addresses are below all that Linux has mapped, and each is used once.
        unsafe { place(Some(map.vaddr), map.len as usize, map.fd, map.rights & WRITE != 0) };
    }
    for fd in start.maps.iter().map(|map| map.fd).chain([START]).filter(|&fd| fd != NONE) {
        // SAFETY: the host opened it for this process, a descriptor a mapping; what is mapped stays so.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    limit(start.header.stack);
    DOCUMENT.set(start);
}

/// The manifest's stack; no core file, which would hold keys; no life without the supervisor.
fn limit(stack: u64) {
    let at_most = |n| Rlimit { current: Some(n), maximum: Some(n) };
    let limited = setrlimit(Resource::Stack, at_most(stack)).and(setrlimit(Resource::Core, at_most(0)));
    if limited.and(set_parent_process_death_signal(Some(Signal::KILL))).is_err() {
        give_up("limits cannot be set");
    }
}

/// Maps the whole of `fd` (or zeros), at an address if one is asked for.
///
/// # Safety
/// Nothing is mapped at the address. (Linux refuses it otherwise, which ends the process.)
unsafe fn place(at: Option<u64>, len: usize, fd: i32, write: bool) -> *mut c_void {
    let protection = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let flags = match at {
        Some(_) => MapFlags::FIXED_NOREPLACE,
        None => MapFlags::empty(),
    };
    let address = at.unwrap_or(0) as *mut c_void;
    // SAFETY: by the caller; NOREPLACE keeps what is there.
    let result = unsafe {
        match fd {
            NONE => mmap_anonymous(address, len, protection, flags | MapFlags::PRIVATE | MapFlags::NORESERVE),
            fd => mmap(address, len, protection, flags | MapFlags::SHARED, BorrowedFd::borrow_raw(fd), 0),
        }
    };
    match result {
        Ok(mapped) => mapped,
        Err(_) => give_up("memory cannot be mapped as the manifest says"),
    }
}

/// Before there is a heap or anybody to report to.
fn give_up(why: &str) -> ! {
    super::calls::write_all(2, b"urmqtt task: ");
    super::calls::write_all(2, why.as_bytes());
    super::calls::write_all(2, b"\n");
    super::calls::leave(3)
}
