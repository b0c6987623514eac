//! Lines from the tasks' log links, as they come.

use crate::bucket::Bucket;
use crate::{Config, Serial};
use alloc::string::String;
use core::fmt::Write;
use ipc::link::End;
use ipc::link::console::{Level, Line, Written};
use ipc::ring::LinkFault;

/// Longest line; what lies beyond is cut.
const MAX_LINE: usize = 512;

/// What the console knows of one task.
pub struct Source {
    name: String,
    bucket: Bucket,
    /// Lines left out since the last one that was written.
    left_out: u32,
    fault_told: bool,
}

pub struct Log {
    config: Config,
    text: String,
}

impl Log {
    pub fn new(config: Config) -> Self {
        Log { config, text: String::new() }
    }

    pub fn source(&self, name: &str) -> Source {
        let bucket = Bucket::new(self.config.lines_per_second, self.config.burst);
        Source { name: name.into(), bucket, left_out: 0, fault_told: false }
    }

    /// Writes what has come from one task. `now`: nanoseconds since boot.
    pub fn drain(
        &mut self,
        source: &mut Source,
        end: &mut End<Written, Line>,
        now: u64,
        serial: &mut impl Serial,
    ) {
        end.poll(true);
        while let Some(line) = end.recv() {
            let taken = self.take(end, line);
            if let Some(text) = end.check(taken) {
                self.line(source, line, text.as_bytes(), now, serial);
                end.send(&Written { buf: line.buf });
            }
        }
        match end.port.fault() {
            Some(fault) if !source.fault_told => {
                source.fault_told = true;
                self.write(&source.name, format_args!("broke the rules of its log: {fault:?}"), now, serial);
            }
            None => source.fault_told = false,
            _ => {}
        }
    }

    /// The line's bytes, copied before anything looks at them.
    fn take(&self, end: &End<Written, Line>, line: Line) -> Result<Copy, LinkFault> {
        let mut copy = Copy { bytes: [0; MAX_LINE], len: (line.len as usize).min(MAX_LINE) };
        if !end.theirs.holds(line.buf, 0, line.len as usize) {
            return Err(LinkFault::Buffer);
        }
        end.theirs.copy(line.buf, 0, &mut copy.bytes[..copy.len])?;
        Ok(copy)
    }

    fn line(&mut self, source: &mut Source, line: Line, text: &[u8], now: u64, serial: &mut impl Serial) {
        source.left_out = source.left_out.saturating_add(line.dropped as u32);
        if line.level as u8 > self.config.level {
            return;
        }
        if !source.bucket.take(now) {
            source.left_out = source.left_out.saturating_add(1);
            return;
        }
        if source.left_out > 0 {
            let n = core::mem::take(&mut source.left_out);
            self.write(&source.name, format_args!("({n} lines left out)"), now, serial);
        }
        let mark = match line.level {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            Level::Info | Level::Debug => "",
        };
        self.write(&source.name, format_args!("{mark}{}", Printable(text)), now, serial);
    }

    /// `[  1.234567] name: text`.
    pub fn write(&mut self, name: &str, text: core::fmt::Arguments, now: u64, serial: &mut impl Serial) {
        self.text.clear();
        let (seconds, micros) = (now / 1_000_000_000, now / 1000 % 1_000_000);
        // Writing to a string doesn't fail.
        let _ = write!(self.text, "[{seconds:>3}.{micros:06}] {name}: {text}\r\n");
        serial.write(self.text.as_bytes());
    }
}

struct Copy {
    bytes: [u8; MAX_LINE],
    len: usize,
}

impl Copy {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Text without what could steer a terminal: control characters and broken UTF-8 as `\xNN`.
struct Printable<'a>(&'a [u8]);

impl core::fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() { write!(f, "\\x{:02x}", c as u32)? } else { f.write_char(c)? }
            }
            chunk.invalid().iter().try_for_each(|b| write!(f, "\\x{b:02x}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
