//! SIMD state: v0 to v31 in full, FPCR, FPSR.

use core::arch::global_asm;

/// Bytes of a saved state.
pub const BYTES: usize = 32 * 16 + 16;

unsafe extern "C" {
    /// # Safety
    /// `area`: [`BYTES`] bytes, 16-byte aligned.
    #[link_name = "simd_save"]
    pub fn save(area: *mut u8);
    /// # Safety
    /// As for `save`; the area holds a saved state or zeros.
    #[link_name = "simd_restore"]
    pub fn restore(area: *const u8);
}

// The kernel is compiled without SIMD, so nothing of it lives in these registers. All zeros is the state of a fresh
// task: round to nearest, no traps, no flags.
global_asm!(
    r#"
.macro each_pair instruction
    \instruction q0, q1, [x0]
    \instruction q2, q3, [x0, #32]
    \instruction q4, q5, [x0, #64]
    \instruction q6, q7, [x0, #96]
    \instruction q8, q9, [x0, #128]
    \instruction q10, q11, [x0, #160]
    \instruction q12, q13, [x0, #192]
    \instruction q14, q15, [x0, #224]
    \instruction q16, q17, [x0, #256]
    \instruction q18, q19, [x0, #288]
    \instruction q20, q21, [x0, #320]
    \instruction q22, q23, [x0, #352]
    \instruction q24, q25, [x0, #384]
    \instruction q26, q27, [x0, #416]
    \instruction q28, q29, [x0, #448]
    \instruction q30, q31, [x0, #480]
.endm

.section .text.simd, "ax"
.arch_extension fp
.arch_extension simd
.global simd_save
simd_save:
    each_pair stp
    mrs     x1, fpcr
    mrs     x2, fpsr
    add     x0, x0, #512
    stp     x1, x2, [x0]
    ret

.global simd_restore
simd_restore:
    each_pair ldp
    add     x0, x0, #512
    ldp     x1, x2, [x0]
    msr     fpcr, x1
    msr     fpsr, x2
    ret
.arch_extension nosimd
.arch_extension nofp
.purgem each_pair
.text
"#
);
