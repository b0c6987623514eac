//! What an exception from EL0 means: ESR_EL1 decoded (Arm ARM, "ESR_EL1, Exception Syndrome Register (EL1)").
//!
//! Pure, so that the host tests it.

use ipc::abi::FaultKind;

/// An exception from EL0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// `svc`; the immediate is not looked at.
    SystemCall,
    /// The task is at fault. `has_address`: FAR_EL1 holds the address.
    Fault { kind: FaultKind, has_address: bool },
}

const fn fault(kind: FaultKind) -> Syndrome {
    Syndrome::Fault { kind, has_address: false }
}

const fn fault_at(kind: FaultKind, has_address: bool) -> Syndrome {
    Syndrome::Fault { kind, has_address }
}

/// Decodes a synchronous exception that came from EL0 in AArch64 state.
pub const fn decode(esr: u64) -> Syndrome {
    let iss = esr & 0x1ff_ffff;
    // FnV: FAR not valid (only for synchronous external aborts).
    let far_valid = iss & 1 << 10 == 0;
    match esr >> 26 & 0x3f {
        0x15 => Syndrome::SystemCall,
        // Branch target, pointer authentication (FEAT_FPAC), guarded control stack.
        0x0d | 0x1c | 0x2d => fault(FaultKind::ControlFlow),
        0x20 => match abort(iss) {
            Abort::Alignment => fault_at(FaultKind::Alignment, far_valid),
            Abort::Translation => fault_at(FaultKind::Execute, far_valid),
            Abort::Other => fault_at(FaultKind::General, far_valid),
        },
        0x24 => match abort(iss) {
            Abort::Alignment => fault_at(FaultKind::Alignment, far_valid),
            // WnR; set for cache maintenance too, which asks for the right to write.
            Abort::Translation if iss & 1 << 6 != 0 => fault_at(FaultKind::Write, far_valid),
            Abort::Translation => fault_at(FaultKind::Read, far_valid),
            Abort::Other => fault_at(FaultKind::General, far_valid),
        },
        // PC alignment has its address in FAR, SP alignment doesn't.
        0x22 => fault_at(FaultKind::Alignment, true),
        0x26 => fault(FaultKind::Alignment),
        0x30 | 0x32 | 0x3c => fault(FaultKind::Breakpoint),
        0x34 => fault_at(FaultKind::Breakpoint, far_valid),
        // Unknown instruction; WFI, WFE, system register, SIMD, SVE and SME that EL0 may not use; illegal state.
        0x00 | 0x01 | 0x07 | 0x09 | 0x0a | 0x0e | 0x14 | 0x18 | 0x19 | 0x1d => fault(FaultKind::Illegal),
        _ => fault(FaultKind::General),
    }
}

enum Abort {
    /// Translation, access flag, permission: nothing (or not this) is mapped there.
    Translation,
    Alignment,
    /// External abort, ECC error, TLB conflict, unsupported atomic or exclusive.
    Other,
}

/// The fault status code of an instruction or data abort (IFSC, DFSC: bits 5 to 0).
const fn abort(iss: u64) -> Abort {
    match iss & 0x3f {
        // Address size, translation, access flag, permission, at levels 0 to 3; the levels -1.
        0x00..=0x0f | 0x29 | 0x2b => Abort::Translation,
        0x21 => Abort::Alignment,
        _ => Abort::Other,
    }
}

/// True when an SError that interrupted EL0 concerns only what the task did: FEAT_RAS says so with "restartable" or
/// "recoverable" (ESR_EL1.AET 0b010 and 0b011, valid with DFSC 0b010001 and IDS 0).
pub const fn error_is_contained(esr: u64) -> bool {
    let architected = esr & 1 << 24 == 0 && esr & 0x3f == 0x11;
    architected && matches!(esr >> 10 & 7, 2 | 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn esr(class: u64, iss: u64) -> u64 {
        class << 26 | 1 << 25 | iss
    }

    #[test]
    fn decodes_what_tasks_can_do() {
        let cases = [
            (esr(0x15, 0), Syndrome::SystemCall),
            (esr(0x15, 0xffff), Syndrome::SystemCall),
            (esr(0x24, 0x07), fault_at(FaultKind::Read, true)),
            (esr(0x24, 0x0f), fault_at(FaultKind::Read, true)),
            (esr(0x24, 0x47), fault_at(FaultKind::Write, true)),
            (esr(0x24, 0x4f), fault_at(FaultKind::Write, true)),
            (esr(0x24, 0x21), fault_at(FaultKind::Alignment, true)),
            (esr(0x24, 0x10 | 1 << 10), fault_at(FaultKind::General, false)),
            (esr(0x20, 0x0f), fault_at(FaultKind::Execute, true)),
            (esr(0x20, 0x07), fault_at(FaultKind::Execute, true)),
            (esr(0x22, 0), fault_at(FaultKind::Alignment, true)),
            (esr(0x26, 0), fault(FaultKind::Alignment)),
            (esr(0x3c, 1), fault(FaultKind::Breakpoint)),
            (esr(0x00, 0), fault(FaultKind::Illegal)),
            (esr(0x18, 0x123), fault(FaultKind::Illegal)),
            (esr(0x07, 0), fault(FaultKind::Illegal)),
            (esr(0x19, 0), fault(FaultKind::Illegal)),
            (esr(0x1d, 0), fault(FaultKind::Illegal)),
            (esr(0x0d, 2), fault(FaultKind::ControlFlow)),
            (esr(0x1c, 0), fault(FaultKind::ControlFlow)),
        ];
        for (syndrome, meaning) in cases {
            assert_eq!(decode(syndrome), meaning, "{syndrome:#x}");
        }
    }

    #[test]
    fn every_class_decodes() {
        for class in 0..64 {
            for status in 0..64 {
                assert_eq!(decode(esr(class, status)) == Syndrome::SystemCall, class == 0x15);
            }
        }
    }

    #[test]
    fn only_architected_recoverable_errors_are_contained() {
        assert!(error_is_contained(0x2f << 26 | 2 << 10 | 0x11));
        assert!(error_is_contained(0x2f << 26 | 3 << 10 | 0x11));
        assert!(!error_is_contained(0x2f << 26 | 0x11));
        assert!(!error_is_contained(0x2f << 26 | 1 << 24 | 2 << 10 | 0x11));
        assert!(!error_is_contained(0x2f << 26 | 2 << 10));
    }
}
