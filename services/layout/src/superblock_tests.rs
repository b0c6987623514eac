use super::*;
use crate::geometry::MIB;
use proptest::prelude::*;
use std::vec::Vec;

fn sample() -> Superblock {
    let geometry = Geometry::new(2048 * MIB, 512, 4096, 0).unwrap();
    Superblock::format(&geometry, &Sizes::default(), [7; 16], 4096).unwrap()
}

fn with_crc(mut block: [u8; BLOCK]) -> [u8; BLOCK] {
    let crc = checksum(&block);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    block
}

fn geometries() -> impl Strategy<Value = Geometry> {
    (0u64..1 << 40, 9u32..13, 0u32..4, 0u32..28).prop_map(|(bytes, logical, larger, optimal)| {
        let logical = 1 << logical;
        Geometry::new(bytes - bytes % logical as u64, logical, logical << larger, 1 << optimal).unwrap()
    })
}

proptest! {
    #[test]
    fn what_is_formatted_is_read(geometry in geometries(), database in 0u64..1 << 36, wal in 0u64..1 << 32, identity: [u8; 16]) {
        let sizes = Sizes { database, wal, telemetry: 1 };
        match Superblock::format(&geometry, &sizes, identity, 4096) {
            Ok(superblock) => {
                prop_assert_eq!(Superblock::decode(&superblock.encode(), geometry.bytes), Ok(superblock.clone()));
                prop_assert_eq!(superblock.regions[4].end(), geometry.usable());
                prop_assert!(superblock.region(Kind::Database).len >= database && superblock.region(Kind::Wal).len >= wal);
                prop_assert!(superblock.regions.iter().all(|r| r.offset >= MIB));
            }
            Err(small) => prop_assert!(small.needed > small.there),
        }
    }

    /// Whatever stands there, even with a good checksum: refused, or exactly what we would have written.
    #[test]
    fn nothing_but_ours_is_taken(
        writes in proptest::collection::vec((0usize..212, prop_oneof![Just(0u8), Just(1), Just(0x80), Just(0xff), any::<u8>()]), 1..6),
        partition in prop_oneof![Just(0u64), Just(MIB), Just(2047 * MIB), Just(2048 * MIB), Just(u64::MAX)],
    ) {
        let mut block = sample().encode();
        for (at, value) in writes {
            block[at] = value;
        }
        let block = with_crc(block);
        if let Ok(superblock) = Superblock::decode(&block, partition) {
            prop_assert_eq!(superblock.encode(), block);
            prop_assert!(superblock.regions.iter().all(|r| r.end() <= partition));
        }
    }

    #[test]
    fn growth_is_telemetrys(before in 1000u64..5000, after in 0u64..10_000) {
        let geometry = Geometry::new(before * MIB, 512, 512, 0).unwrap();
        let old = Superblock::format(&geometry, &Sizes::default(), [1; 16], 4096).unwrap();
        match old.grown(after * MIB + 512) {
            None => prop_assert!(after <= before),
            Some(new) => {
                prop_assert!(after > before && new.generation == old.generation + 1 && new.slot() != old.slot());
                prop_assert_eq!(&new.regions[..4], &old.regions[..4]);
                prop_assert_eq!(new.regions[4].end(), after * MIB);
                prop_assert_eq!(Superblock::decode(&new.encode(), after * MIB + 512), Ok(new));
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let block = sample().encode();
    for bit in 0..BLOCK * 8 {
        let mut flipped = block;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let wrong = Superblock::decode(&flipped, u64::MAX).unwrap_err();
        assert!(matches!(wrong, Wrong::Crc | Wrong::Magic), "bit {bit}: {wrong:?}");
    }
}

/// The documentation's offsets.
#[test]
fn the_bytes_are_where_the_document_says() {
    let block = sample().encode();
    assert_eq!(&block[..8], b"urmqDATA");
    assert_eq!(block[8..12], 1u32.to_le_bytes());
    assert_eq!(block[12..16], 512u32.to_le_bytes());
    assert_eq!(block[16..24], 1u64.to_le_bytes());
    assert_eq!(block[24..40], [7; 16]);
    assert_eq!(block[40..48], (2048 * MIB).to_le_bytes());
    assert_eq!(block[48..56], MIB.to_le_bytes());
    assert_eq!(block[56..60], 4096u32.to_le_bytes());
    assert_eq!(block[60..64], 4096u32.to_le_bytes());
    let kinds: Vec<u8> = block[88..208].chunks(24).map(|region| region[0]).collect();
    assert_eq!(kinds, [1, 2, 3, 4, 5]);
    assert_eq!(block[96..104], MIB.to_le_bytes());
    assert_eq!(block[104..112], (256 * MIB).to_le_bytes());
    // CRC-32C's check value, so that another program's polynomial fits.
    assert_eq!(CRC.checksum(b"123456789"), 0xe306_9283);
}

#[test]
fn a_rule_that_is_broken_is_named() {
    let good = sample();
    let broken: [(&str, fn(&mut Superblock)); 9] = [
        ("generation", |s| s.generation = 0),
        ("block sizes", |s| s.logical = 500),
        ("block sizes", |s| s.align = 3 * MIB),
        ("regions", |s| s.regions[1].offset += MIB),
        ("regions", |s| s.regions[4].len -= MIB),
        ("sizes of the backups", |s| {
            s.regions[3].len += MIB;
            s.regions[4].offset += MIB;
            s.regions[4].len -= MIB;
        }),
        ("pages", |s| s.database_pages = 1 << 40),
        ("pages", |s| s.page_bytes = 5000),
        ("generations of the backups", |s| s.copies.b = 2),
    ];
    for (name, change) in broken {
        let mut superblock = good.clone();
        change(&mut superblock);
        let wrong = Superblock::decode(&superblock.encode(), u64::MAX).unwrap_err();
        assert!(matches!(wrong, Wrong::Rule(rule) if rule.starts_with(name)), "{name}: {wrong:?}");
    }
    let beyond = Superblock::decode(&good.encode(), 2047 * MIB).unwrap_err();
    assert_eq!(beyond, Wrong::Rule("used bytes beyond the partition"));
}
