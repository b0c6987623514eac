//! every task (side A) - console (side B): log lines; and console (A) - supervisor (B): commands of development images.

use crate::ring::{Desc, Message};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    Error = 0,
    Warn = 1,
    Info = 2,
    Debug = 3,
}

/// A task's log: `len` bytes (UTF-8, no newline) at the start of a buffer of pool A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub level: Level,
    pub buf: u32,
    pub len: u16,
    /// Lines that the task had to drop before this one, saturating.
    pub dropped: u16,
}

impl Message for Line {
    fn encode(&self) -> Desc {
        Desc {
            kind: 1,
            flags: self.level as u8,
            off: self.dropped,
            conn: 0,
            buf: self.buf,
            len: self.len as u32,
        }
    }
    fn decode(d: Desc) -> Option<Self> {
        let level = match d.flags {
            0 => Level::Error,
            1 => Level::Warn,
            2 => Level::Info,
            3 => Level::Debug,
            _ => return None,
        };
        (d.kind == 1).then_some(())?;
        Some(Line { level, buf: d.buf, len: u16::try_from(d.len).ok()?, dropped: d.off })
    }
}

/// console to a task: the buffer is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub buf: u32,
}

impl Message for Written {
    fn encode(&self) -> Desc {
        Desc { kind: 1, buf: self.buf, ..Desc::default() }
    }
    fn decode(d: Desc) -> Option<Self> {
        (d.kind == 1).then_some(Written { buf: d.buf })
    }
}

/// console to supervisor: a command typed on the serial line of a development image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Inject a fault into task `conn`.
    Kill {
        task: u16,
    },
    /// Print each task's state to the log.
    Status,
    Reboot,
    PowerOff,
}

impl Message for Command {
    fn encode(&self) -> Desc {
        match *self {
            Command::Kill { task } => Desc { kind: 1, conn: task as u32, ..Desc::default() },
            Command::Status => Desc { kind: 2, ..Desc::default() },
            Command::Reboot => Desc { kind: 3, ..Desc::default() },
            Command::PowerOff => Desc { kind: 4, ..Desc::default() },
        }
    }
    fn decode(d: Desc) -> Option<Self> {
        Some(match d.kind {
            1 => Command::Kill { task: u16::try_from(d.conn).ok()? },
            2 => Command::Status,
            3 => Command::Reboot,
            4 => Command::PowerOff,
            _ => return None,
        })
    }
}
