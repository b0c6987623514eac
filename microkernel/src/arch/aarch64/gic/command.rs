//! ITS commands and table descriptors as bits (GIC architecture specification, IHI 0069, "ITS commands" and "ITS
//! register descriptions"). Pure, so that the host tests it.

/// One command: four little-endian doublewords.
pub type Command = [u64; 4];

const VALID: u64 = 1 << 63;

/// Translations of `device` stand in the table at `itt` (256-byte aligned), for events of `event_bits` bits.
pub const fn mapd(device: u32, itt: u64, event_bits: u32) -> Command {
    [0x08 | (device as u64) << 32, event_bits as u64 - 1, VALID | itt & 0x000f_ffff_ffff_ff00, 0]
}

/// Collection `collection` goes to the redistributor `target` (see [`target`]).
pub const fn mapc(collection: u16, target: u64) -> Command {
    [0x09, 0, VALID | target | collection as u64, 0]
}

/// `event` of `device` raises LPI `lpi` in `collection`.
pub const fn mapti(device: u32, event: u32, lpi: u32, collection: u16) -> Command {
    [0x0a | (device as u64) << 32, event as u64 | (lpi as u64) << 32, collection as u64, 0]
}

/// Drops what the redistributor has cached of the LPI's configuration.
pub const fn inv(device: u32, event: u32) -> Command {
    [0x0c | (device as u64) << 32, event as u64, 0, 0]
}

/// Waits for the effects of all earlier commands at `target`.
pub const fn sync(target: u64) -> Command {
    [0x05, 0, target, 0]
}

/// RDbase of MAPC and SYNC: the redistributor's physical address when GITS_TYPER.PTA, else its processor number.
pub const fn target(by_address: bool, redistributor: u64, processor: u16) -> u64 {
    if by_address { redistributor & 0x000f_ffff_ffff_0000 } else { (processor as u64) << 16 }
}

/// GITS_BASER.Type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Device = 1,
    Collection = 4,
}

/// Shareability and cacheability of what the GIC reads and writes in memory: the inner domain and write-back, as our
/// own mapping of it; or, for a GIC that can't (the field reads back as 0), non-shareable and non-cacheable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    Shared,
    None,
}

impl Coherence {
    const fn share(self) -> u64 {
        matches!(self, Coherence::Shared) as u64
    }

    /// 0b111: read-allocate, write-allocate, write-back. 0b001: non-cacheable.
    const fn cache(self) -> u64 {
        if matches!(self, Coherence::Shared) { 0b111 } else { 0b001 }
    }

    /// From the shareability field, bits 11 and 10 of all these registers.
    pub const fn read_back(register: u64) -> Self {
        if register >> 10 & 3 == 1 { Coherence::Shared } else { Coherence::None }
    }
}

/// GITS_BASER page sizes, by the field's value.
pub const PAGE_BYTES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

/// GITS_BASER: `pages` pages of size number `page_size`; `indirect`: of pointers to pages of entries.
pub const fn baser(address: u64, pages: u64, page_size: usize, indirect: bool, coherence: Coherence) -> u64 {
    // With 64 KiB pages, address bits 51 to 48 stand in bits 15 to 12.
    let address = if page_size == 2 {
        address & 0x0000_ffff_ffff_0000 | (address >> 48 & 0xf) << 12
    } else {
        address & 0x0000_ffff_ffff_f000
    };
    VALID
        | (indirect as u64) << 62
        | coherence.cache() << 59
        | address
        | coherence.share() << 10
        | (page_size as u64) << 8
        | (pages - 1)
}

/// GITS_CBASER: a command queue of `pages` 4 KiB pages; `address` is 64 KiB aligned.
pub const fn cbaser(address: u64, pages: u64, coherence: Coherence) -> u64 {
    VALID | coherence.cache() << 59 | address & 0x000f_ffff_ffff_f000 | coherence.share() << 10 | (pages - 1)
}

/// GICR_PROPBASER: one byte an LPI, interrupt numbers of `id_bits` bits.
pub const fn propbaser(address: u64, id_bits: u32, coherence: Coherence) -> u64 {
    address & 0x000f_ffff_ffff_f000 | coherence.share() << 10 | coherence.cache() << 7 | (id_bits as u64 - 1)
}

/// GICR_PENDBASER: one bit an interrupt number, all zero (PTZ); `address` is 64 KiB aligned.
pub const fn pendbaser(address: u64, coherence: Coherence) -> u64 {
    1 << 62 | address & 0x000f_ffff_ffff_0000 | coherence.share() << 10 | coherence.cache() << 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_fields_in_place() {
        assert_eq!(mapd(0x10, 0x4567_8900, 5), [0x10_0000_0008, 4, 1 << 63 | 0x4567_8900, 0]);
        assert_eq!(mapc(3, 0x80a_0000), [9, 0, 1 << 63 | 0x80a_0000 | 3, 0]);
        assert_eq!(mapti(0x10, 1, 8193, 2), [0x10_0000_000a, 8193 << 32 | 1, 2, 0]);
        assert_eq!(inv(0x10, 1), [0x10_0000_000c, 1, 0, 0]);
        assert_eq!(sync(0x80a_0000), [5, 0, 0x80a_0000, 0]);
    }

    #[test]
    fn targets_are_addresses_or_numbers() {
        assert_eq!(target(true, 0x080a_0000, 7), 0x080a_0000);
        assert_eq!(target(false, 0x080a_0000, 7), 7 << 16);
    }

    #[test]
    fn registers_say_where_and_how() {
        let shared = Coherence::Shared;
        assert_eq!(
            baser(0x4000_0000, 1, 0, true, shared),
            1 << 63 | 1 << 62 | 7 << 59 | 0x4000_0000 | 1 << 10
        );
        assert_eq!(
            baser(0x3_4000_0000_0000 & !0xffff, 2, 2, false, Coherence::None),
            1 << 63 | 1 << 59 | 0x4000_0000_0000 | 3 << 12 | 2 << 8 | 1
        );
        assert_eq!(cbaser(0x4001_0000, 1, shared), 1 << 63 | 7 << 59 | 0x4001_0000 | 1 << 10);
        assert_eq!(propbaser(0x4002_0000, 14, shared), 0x4002_0000 | 1 << 10 | 7 << 7 | 13);
        assert_eq!(pendbaser(0x4003_0000, shared), 1 << 62 | 0x4003_0000 | 1 << 10 | 7 << 7);
        for coherence in [Coherence::Shared, Coherence::None] {
            assert_eq!(Coherence::read_back(propbaser(0, 14, coherence)), coherence);
            assert_eq!(Coherence::read_back(cbaser(0, 1, coherence)), coherence);
        }
    }
}
