//! Lines for the log: why a task stopped, in words.

use core::fmt::{self, Display, Formatter};
use ipc::abi::{FaultKind, FaultRecord};

/// A fault as one line. Addresses only where the image is for development: in a production image they would help who
/// made the task fault.
pub struct Fault<'a> {
    pub record: &'a FaultRecord,
    pub addresses: bool,
}

impl Display for Fault<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let r = self.record;
        let Some(kind) = FaultKind::from_number(r.kind) else {
            return write!(f, "stopped for unknown reason {}", r.kind);
        };
        f.write_str(words(kind))?;
        let len = (r.message_len as usize).min(r.message.len());
        match kind {
            FaultKind::Panic => {
                f.write_str(": ")?;
                for chunk in r.message[..len].utf8_chunks() {
                    f.write_str(chunk.valid())?;
                }
                return Ok(());
            }
            FaultKind::BadCall => write!(f, " (call {})", r.address)?,
            FaultKind::Read | FaultKind::Write | FaultKind::StackOverflow | FaultKind::Alignment
                if self.addresses =>
            {
                write!(f, " at {:#x}", r.address)?
            }
            _ => {}
        }
        let has_pc =
            !matches!(kind, FaultKind::None | FaultKind::Exit | FaultKind::Held | FaultKind::Injected);
        if self.addresses && has_pc {
            write!(f, ", pc {:#x}, sp {:#x}", r.pc, r.sp)?;
        }
        Ok(())
    }
}

fn words(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::None => "stopped",
        FaultKind::Read => "read fault",
        FaultKind::Write => "write fault",
        FaultKind::Execute => "execute fault",
        FaultKind::Illegal => "illegal instruction",
        FaultKind::Divide => "division by zero",
        FaultKind::Alignment => "alignment fault",
        FaultKind::Breakpoint => "breakpoint",
        FaultKind::BadCall => "bad system call",
        FaultKind::Panic => "panic",
        FaultKind::Exit => "exit",
        FaultKind::Injected => "injected fault",
        FaultKind::StackOverflow => "stack overflow",
        FaultKind::ControlFlow => "control flow fault",
        FaultKind::General => "protection fault",
        FaultKind::Held => "held",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn record(kind: FaultKind, message: &[u8]) -> FaultRecord {
        let mut bytes = [0; 256];
        bytes[..message.len()].copy_from_slice(message);
        FaultRecord {
            kind: kind as u32,
            epoch: 1,
            pc: 0x40_1234,
            address: 0xdead_0000,
            sp: 0x7000,
            ticks: 0,
            message_len: message.len() as u32,
            reserved: 0,
            message: bytes,
        }
    }

    #[test]
    fn production_images_keep_addresses_to_themselves() {
        let r = record(FaultKind::Write, b"");
        let line = Fault { record: &r, addresses: true }.to_string();
        assert_eq!(line, "write fault at 0xdead0000, pc 0x401234, sp 0x7000");
        assert_eq!(Fault { record: &r, addresses: false }.to_string(), "write fault");
    }

    #[test]
    fn any_record_is_a_line() {
        for kind in 0..20 {
            let mut r = record(FaultKind::Panic, b"bytes \xff\xfe that are no text");
            r.kind = kind;
            r.message_len = u32::MAX;
            assert!(!Fault { record: &r, addresses: true }.to_string().is_empty());
        }
    }

    #[test]
    fn a_panic_has_its_message() {
        let r = record(FaultKind::Panic, b"out of cheese");
        assert_eq!(Fault { record: &r, addresses: true }.to_string(), "panic: out of cheese");
    }
}
