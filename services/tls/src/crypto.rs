//! What ring asks of the system below it, under the names of the system that the tasks' targets name as theirs: see
//! docs/decisions/0065-crypto-provider.md.

/// Random bytes.
///
/// # Safety
/// `buffer` points to `length` writable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn zx_cprng_draw(buffer: *mut u8, length: usize) {
    // The bytes may be uninitialised, so they are written before they are anybody's slice.
    // SAFETY: by the caller.
    let bytes = unsafe {
        buffer.write_bytes(0, length);
        core::slice::from_raw_parts_mut(buffer, length)
    };
    rt::fill_random(bytes);
}

/// Which cryptographic instructions there are (x86_64 asks CPUID).
///
/// # Safety
/// `features` points to a writable word.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
unsafe extern "C" fn zx_system_get_features(kind: u32, features: *mut u32) -> i32 {
    const OK: i32 = 0;
    const NOT_SUPPORTED: i32 = -2;
    const CPU: u32 = 0;
    const AES: u32 = 1 << 3;
    const PMULL: u32 = 1 << 4;
    const SHA256: u32 = 1 << 6;
    const SHA512: u32 = 1 << 18;
    if kind != CPU {
        return NOT_SUPPORTED;
    }
    // ID_AA64ISAR0_EL1: each higher value of a field includes the lower ones.
    let field =
        |shift: u32, least: u32, feature: u32| if rt::isa() >> shift & 15 >= least { feature } else { 0 };
    let found = field(4, 1, AES) | field(4, 2, PMULL) | field(12, 1, SHA256) | field(12, 2, SHA512);
    // SAFETY: by the caller.
    unsafe { features.write(found) };
    OK
}
