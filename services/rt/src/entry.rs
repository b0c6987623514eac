//! From the first instruction to `main`, and the way out when something panics.

use crate::log::Cursor;
use crate::platform;
use crate::task::{Task, epochs};
use core::fmt::{Arguments, Write};
use core::panic::Location;
use ipc::abi::{Exit, INFO_VADDR, PAGE};
use ipc::manifest::{self, info};

/// Bytes of the info document that are mapped at most: its region's length stands inside, so the header is read first.
fn info_document() -> &'static [u8] {
    // SAFETY: the builder maps at least one page here, and the kernel has filled it from the package.
    let first = unsafe { core::slice::from_raw_parts(INFO_VADDR as *const u8, PAGE) };
    let len = info::document_len(first).unwrap_or(PAGE);
    // SAFETY: the builder maps the whole document.
    unsafe { core::slice::from_raw_parts(INFO_VADDR as *const u8, len) }
}

#[doc(hidden)]
pub fn start(main: fn(Task) -> !) -> ! {
    platform::map();
    let info = info::Info::parse(info_document()).expect("info page");
    // SAFETY: the builder maps the heap for this task alone; this runs once.
    unsafe { crate::heap::init(info.header.heap_vaddr, info.header.heap_len) };
    platform::confine();
    let task = Task { info };
    let early = info.header.flags as u32 & manifest::EARLY_LOG != 0;
    crate::log::init(task.find_link("log"), early);
    if let Some(boot) = task.boot() {
        crate::random::init(boot.seed, [epochs().of(info.header.task) as u64, crate::ticks_now()]);
    }
    main(task)
}

/// Ends the task with the panic's message in its fault record.
pub(crate) fn panicked(message: Arguments, at: Option<&Location>) -> ! {
    let mut bytes = [0; 256];
    let mut cursor = Cursor { into: &mut bytes, len: 0 };
    let _ = match at {
        Some(at) => write!(cursor, "{message} ({}:{})", at.file(), at.line()),
        None => write!(cursor, "{message}"),
    };
    let len = cursor.len;
    platform::exit(Exit::Panic, core::str::from_utf8(&bytes[..len]).unwrap_or("panic"))
}
