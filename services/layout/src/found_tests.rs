use super::*;
use crate::geometry::{Geometry, MIB};
use crate::regions::Sizes;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const BYTES: u64 = 1024 * MIB;

fn formatted(sizes: &Sizes) -> Superblock {
    let geometry = Geometry::new(BYTES, 512, 4096, 0).unwrap();
    Superblock::format(&geometry, sizes, [9; 16], 4096).unwrap()
}

fn put(start: &mut [u8], slot: usize, block: &[u8]) {
    start[SLOTS[slot] as usize..][..block.len()].copy_from_slice(block);
}

fn zeros() -> Vec<u8> {
    vec![0; MIB as usize]
}

#[test]
fn only_zeros_are_empty() {
    let mut start = zeros();
    assert_eq!(inspect(&start, BYTES), Found::Empty);
    assert_eq!(inspect(&start[..1000], 1000), Found::Refused(Refusal::Short));
    for at in [0, 511, 4096, 600 << 10, (1 << 20) - 1] {
        start[at] = 1;
        assert_eq!(inspect(&start, BYTES), Found::Refused(Refusal::Foreign), "a byte at {at}");
        start[at] = 0;
    }
}

#[test]
fn another_layout_is_left_alone_though_the_other_slot_is_ours() {
    let mut start = zeros();
    let first = formatted(&Sizes::default());
    put(&mut start, first.slot(), &first.encode());
    let mut foreign = first.next().encode();
    foreign[8] = 2;
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(&foreign[..BLOCK - 4]);
    foreign[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    put(&mut start, first.next().slot(), &foreign);
    let Found::Refused(refusal) = inspect(&start, BYTES) else { panic!("taken") };
    assert_eq!(refusal, Refusal::Version(2));
    assert!(std::format!("{refusal}").contains("newer image"));
}

#[test]
fn two_partitions_in_one_are_refused() {
    let mut start = zeros();
    let first = formatted(&Sizes::default());
    let other = Superblock { identity: [8; 16], ..first.next() };
    put(&mut start, first.slot(), &first.encode());
    put(&mut start, other.slot(), &other.encode());
    assert_eq!(inspect(&start, BYTES), Found::Refused(Refusal::Mixed));
}

#[test]
fn two_damaged_superblocks_are_not_formatted_over() {
    let mut start = zeros();
    let first = formatted(&Sizes::default());
    for superblock in [&first, &first.next()] {
        let mut block = superblock.encode();
        block[100] ^= 1;
        put(&mut start, superblock.slot(), &block);
    }
    assert_eq!(inspect(&start, BYTES), Found::Refused(Refusal::Damaged));
}

proptest! {
    /// Power is cut in the middle of a superblock's write: any of its sectors old, new or garbage. What is found is the
    /// generation before or the new one, never anything else, and the next write mends it.
    #[test]
    fn a_torn_write_loses_nothing(
        updates in 1u64..6,
        sectors in proptest::collection::vec(0u8..3, 8),
        garbage: [u8; 32],
    ) {
        let mut start = zeros();
        let mut current = formatted(&Sizes::default());
        put(&mut start, current.slot(), &current.encode());
        for _ in 1..updates {
            current = current.next();
            current.database_pages += 1;
            put(&mut start, current.slot(), &current.encode());
        }
        let mut next = current.next();
        next.copies.a = next.generation;
        let (block, at) = (next.encode(), SLOTS[next.slot()] as usize);
        for (i, state) in sectors.iter().enumerate() {
            let place = at + i * 512..at + (i + 1) * 512;
            match state {
                0 => {}
                1 => start[place.clone()].copy_from_slice(&block[i * 512..(i + 1) * 512]),
                _ => start[place].chunks_mut(32).for_each(|chunk| chunk.copy_from_slice(&garbage)),
            }
        }
        let Found::Ours { superblock, damaged } = inspect(&start, BYTES) else { panic!("not found") };
        let whole = start[at..at + BLOCK] == block;
        prop_assert_eq!(&superblock, if whole { &next } else { &current });
        prop_assert!(damaged.is_none_or(|slot| slot == superblock.next().slot()));
        let mended = superblock.next();
        put(&mut start, mended.slot(), &mended.encode());
        let found = inspect(&start, BYTES);
        let mended = Found::Ours { superblock: mended, damaged: None };
        prop_assert_eq!(found, mended);
    }
}
