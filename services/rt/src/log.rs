//! Log lines to the console: formatted into a buffer of the task's own pool; dropped and counted when there is none.

use crate::once::Global;
use crate::task::{Bell, Link};
use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt::{self, Write};
use ipc::link::console::{Level, Line, Written};

/// Lines kept while the console is not (yet) there.
const BACKLOG: usize = 48;

struct Log {
    link: Option<Link<Line, Written>>,
    early: bool,
    backlog: VecDeque<(Level, String)>,
    dropped: u16,
}

static LOG: Global<Log> = Global::new();

/// `link`: the task's log link, if it has one. `early`: the image allows the early console.
pub(crate) fn init(link: Option<Link<Line, Written>>, early: bool) {
    LOG.set(Log { link, early, backlog: VecDeque::new(), dropped: 0 });
}

/// One line; what doesn't fit a buffer is cut.
pub fn write(level: Level, text: fmt::Arguments) {
    LOG.with(|log| log.write(level, text));
}

/// Runs `f` on the log's link as one more link of the task.
pub(crate) fn with_bell<R>(f: impl FnOnce(&mut dyn Bell) -> R) -> Option<R> {
    LOG.with(|log| {
        log.drive();
        log.link.as_mut().map(|l| f(l))
    })
    .flatten()
}

impl Log {
    fn write(&mut self, level: Level, text: fmt::Arguments) {
        self.drive();
        if self.backlog.is_empty() && self.send(level, text) {
            return;
        }
        if self.backlog.len() == BACKLOG {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let mut line = String::new();
        let _ = line.write_fmt(text);
        self.backlog.push_back((level, line));
    }

    fn send(&mut self, level: Level, text: fmt::Arguments) -> bool {
        let Some(link) = self.link.as_mut() else {
            return self.early && early(text);
        };
        if !link.end.is_up() {
            return false;
        }
        let Some(buf) = link.end.own.take() else { return false };
        let mut cursor = Cursor { into: link.end.own.bytes(buf), len: 0 };
        let _ = cursor.write_fmt(text);
        let len = cursor.len as u16;
        link.end.own.lend(buf);
        let dropped = core::mem::take(&mut self.dropped);
        link.end.send(&Line { level, buf, len, dropped })
    }

    /// Takes buffers back and sends what waited.
    fn drive(&mut self) {
        let Some(link) = self.link.as_mut() else { return };
        link.end.poll(true);
        while let Some(Written { buf }) = link.end.recv() {
            let returned = link.end.own.give_back(buf);
            link.end.check(returned);
        }
        while let Some((level, line)) = self.backlog.pop_front() {
            if !self.send(level, format_args!("{line}")) {
                self.backlog.push_front((level, line));
                break;
            }
        }
    }
}

/// One write to the kernel's console, for tasks without a log link.
fn early(text: fmt::Arguments) -> bool {
    let mut bytes = [0; 256];
    let mut cursor = Cursor { into: &mut bytes[..255], len: 0 };
    let _ = cursor.write_fmt(text);
    let len = cursor.len;
    bytes[len] = b'\n';
    crate::platform::early_log(&bytes[..len + 1]);
    true
}

/// Writes text up to the end of a slice, whole characters only.
pub(crate) struct Cursor<'a> {
    pub into: &'a mut [u8],
    pub len: usize,
}

impl Write for Cursor<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let mut n = s.len().min(self.into.len() - self.len);
        while !s.is_char_boundary(n) {
            n -= 1;
        }
        self.into[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        if n == s.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
