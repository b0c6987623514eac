//! Sequence numbers (RFC 9293 3.4): modulo 2^32, compared by the sign of their distance.

/// How far `a` is ahead of `b`.
pub fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

pub fn before(a: u32, b: u32) -> bool {
    ahead(a, b) < 0
}

pub fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}
