//! What a partition turns out to be, from its first MiB.

use crate::superblock::{BLOCK, SLOTS, Superblock, VERSION, Wrong};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// All zeros: may be formatted.
    Empty,
    /// Ours. `damaged`: the slot that the next generation will mend, if one of the two is no whole superblock.
    Ours { superblock: Superblock, damaged: Option<usize> },
    /// Not to be written.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Shorter than the superblocks' place.
    Short,
    /// Bytes of something else.
    Foreign,
    /// A layout of this version, which is not ours.
    Version(u32),
    /// Ours, but both superblocks are damaged.
    Damaged,
    /// A whole superblock that breaks this rule.
    Rule(&'static str),
    /// The two superblocks belong to different partitions.
    Mixed,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refusal::Short => f.write_str("the data partition is shorter than 1 MiB"),
            Refusal::Foreign => f.write_str(
                "the data partition holds something else: only one of zeros is formatted; wipe it to use it",
            ),
            Refusal::Version(v) if *v > VERSION => {
                write!(
                    f,
                    "the data partition has layout {v}, this image reads layout {VERSION}: boot a newer image"
                )
            }
            Refusal::Version(v) => {
                write!(
                    f,
                    "the data partition has layout {v}, this image reads layout {VERSION}: `urmqtt disk migrate`"
                )
            }
            Refusal::Damaged => {
                f.write_str("both superblocks of the data partition are damaged: `urmqtt disk check`")
            }
            Refusal::Rule(rule) => write!(f, "the data partition's superblock breaks a rule: {rule}"),
            Refusal::Mixed => f.write_str("the data partition's superblocks are of different partitions"),
        }
    }
}

/// `start`: the partition's first MiB; `partition_bytes`: all of it.
pub fn inspect(start: &[u8], partition_bytes: u64) -> Found {
    let slot = |n: usize| start.get(SLOTS[n] as usize..)?.first_chunk::<BLOCK>();
    let (true, Some(a), Some(b)) = (start.len() >= 1 << 20, slot(0), slot(1)) else {
        return Found::Refused(Refusal::Short);
    };
    if start.iter().all(|&byte| byte == 0) {
        return Found::Empty;
    }
    let read = [Superblock::decode(a, partition_bytes), Superblock::decode(b, partition_bytes)];
    // What we understand only in part is somebody's data: a newer layout in one slot is reason enough to leave it alone.
    let known = |wrong: &Wrong| match *wrong {
        Wrong::Version(version) => Some(Refusal::Version(version)),
        Wrong::Rule(rule) => Some(Refusal::Rule(rule)),
        Wrong::Zeros | Wrong::Magic | Wrong::Crc => None,
    };
    if let Some(refusal) = read.iter().filter_map(|r| known(r.as_ref().err()?)).next() {
        return Found::Refused(refusal);
    }
    match read {
        [Ok(a), Ok(b)] if a.identity != b.identity => Found::Refused(Refusal::Mixed),
        [Ok(a), Ok(b)] => {
            let superblock = if a.generation > b.generation { a } else { b };
            Found::Ours { superblock, damaged: None }
        }
        // (Of a partition that was formatted just now, the other slot is still zeros.)
        [Ok(superblock), Err(_)] => Found::Ours { superblock, damaged: Some(1) },
        [Err(_), Ok(superblock)] => Found::Ours { superblock, damaged: Some(0) },
        [Err(Wrong::Crc), _] | [_, Err(Wrong::Crc)] => Found::Refused(Refusal::Damaged),
        [Err(_), Err(_)] => Found::Refused(Refusal::Foreign),
    }
}

#[cfg(test)]
#[path = "found_tests.rs"]
mod tests;
