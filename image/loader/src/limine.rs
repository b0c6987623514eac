//! The Limine boot protocol, base revision 2: a kernel's requests, found in its image, and where the answers go.
//!
//! Every response is a row of 64-bit words that starts with its revision, so [`crate::prepare`] writes them as such.

use core::fmt;

/// Start of the higher-half direct map.
pub const HHDM: u64 = 0xffff_8000_0000_0000;

const COMMON: [u64; 2] = [0xc7b1_dd30_df4c_8b88, 0x0a82_e883_a194_f07b];
const BASE_REVISION: [u64; 2] = [0xf956_2b2d_5c95_a6c8, 0x6a7b_3849_4453_6bdc];
const START: [u64; 4] =
    [0xf6b8_f4b3_9de7_d1ae, 0xfab9_1a69_40fc_b9cf, 0x785c_6ed0_15d3_e316, 0x181e_920a_7852_b9d9];
const END: [u64; 2] = [0xadc0_e053_1bb1_0d03, 0x9572_709f_3176_4c62];

/// What a kernel can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Feature {
    Info,
    CommandLine,
    FirmwareType,
    StackSize,
    DirectMap,
    PagingMode,
    Processors,
    MemoryMap,
    EntryPoint,
    ExecutableFile,
    Modules,
    Rsdp,
    EfiSystemTable,
    Date,
    ExecutableAddress,
    DeviceTree,
}

const FEATURES: usize = 16;
const IDS: [[u64; 2]; FEATURES] = [
    [0xf550_38d8_e2a1_202f, 0x2794_26fc_f5f5_9740],
    [0x4b16_1536_e598_651e, 0xb390_ad4a_2f1f_303a],
    [0x8c2f_75d9_0bef_28a8, 0x7045_a468_8eac_00c3],
    [0x224e_f046_0a8e_8926, 0xe1cb_0fc2_5f46_ea3d],
    [0x48dc_f1cb_8ad2_b852, 0x6398_4e95_9a98_244b],
    [0x95c1_a0ed_ab09_44cb, 0xa4e5_cb38_42f7_488a],
    [0x95a6_7b81_9a1b_857e, 0xa0b6_1b72_3b6a_73e0],
    [0x67cf_3d9d_378a_806f, 0xe304_acdf_c50c_3c62],
    [0x13d8_6c03_5a1c_d3e1, 0x2b0c_aa89_d8f3_026a],
    [0xad97_e90e_83f1_ed67, 0x31eb_5d1c_5ff2_3b69],
    [0x3e7e_2797_02be_32af, 0xca1c_4f3b_d128_0cee],
    [0xc5e7_7b6b_397e_7b43, 0x2763_7845_accd_cf3c],
    [0x5ceb_a516_3eaa_f6d6, 0x0a69_8161_0cf6_5fcc],
    [0x5027_46e1_84c0_88aa, 0xfbc5_ec83_e632_7893],
    [0x71ba_7686_3cc5_5f63, 0xb264_4a48_c516_a487],
    [0xb40d_db48_fb54_bac7, 0x5450_8149_3f81_ffb7],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The kernel doesn't ask for base revision 2.
    Revision,
    /// The same request stands there twice.
    Twice(Feature),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Revision => f.write_str("kernel does not ask for Limine base revision 2"),
            Error::Twice(feature) => write!(f, "kernel has the request {feature:?} twice"),
        }
    }
}

/// Offsets of the requests in the kernel's image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    revision: usize,
    found: [Option<usize>; FEATURES],
}

impl Requests {
    /// Looks at every 8-byte aligned place between the delimiters, or of the whole image.
    pub fn scan(image: &[u8]) -> Result<Self, Error> {
        let mut requests = Requests::default();
        let mut revision = None;
        let mut at = start(image);
        while at + 8 <= image.len() {
            match word(image, at) {
                w if w == COMMON[0] => requests.note(image, at)?,
                w if w == BASE_REVISION[0] && words(image, at) == BASE_REVISION => revision = Some(at + 16),
                w if w == END[0] && words(image, at) == END => break,
                _ => {}
            }
            at += 8;
        }
        requests.revision = revision.filter(|&r| word(image, r) == 2).ok_or(Error::Revision)?;
        Ok(requests)
    }

    fn note(&mut self, image: &[u8], at: usize) -> Result<(), Error> {
        let [common @ .., id0, id1] = words::<4>(image, at);
        if common != COMMON || at + 48 > image.len() {
            return Ok(());
        }
        if let Some(i) = IDS.iter().position(|id| *id == [id0, id1])
            && self.found[i].replace(at).is_some()
        {
            return Err(Error::Twice(FEATURE[i]));
        }
        Ok(())
    }

    pub fn wants(&self, feature: Feature) -> bool {
        self.found[feature as usize].is_some()
    }

    /// The word after the common part of a request.
    pub fn argument(&self, image: &[u8], feature: Feature) -> Option<u64> {
        self.found[feature as usize].map(|at| word(image, at + 48))
    }

    /// Sets the response of a request that was made.
    pub fn answer(&self, image: &mut [u8], feature: Feature, response: u64) {
        if let Some(at) = self.found[feature as usize] {
            image[at + 40..at + 48].copy_from_slice(&response.to_le_bytes());
        }
    }

    /// Tells the kernel that it got the base revision that it asked for.
    pub fn accept(&self, image: &mut [u8]) {
        image[self.revision..self.revision + 8].fill(0);
    }
}

const FEATURE: [Feature; FEATURES] = [
    Feature::Info,
    Feature::CommandLine,
    Feature::FirmwareType,
    Feature::StackSize,
    Feature::DirectMap,
    Feature::PagingMode,
    Feature::Processors,
    Feature::MemoryMap,
    Feature::EntryPoint,
    Feature::ExecutableFile,
    Feature::Modules,
    Feature::Rsdp,
    Feature::EfiSystemTable,
    Feature::Date,
    Feature::ExecutableAddress,
    Feature::DeviceTree,
];

/// Behind the last start marker, or 0.
fn start(image: &[u8]) -> usize {
    let marker = |&at: &usize| word(image, at) == START[0] && words(image, at) == START;
    (0..image.len() / 8).rev().map(|i| i * 8).find(marker).map_or(0, |at| at + 32)
}

/// The word at an offset; 0 beyond the end.
fn word(image: &[u8], at: usize) -> u64 {
    image.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn words<const N: usize>(image: &[u8], at: usize) -> [u64; N] {
    core::array::from_fn(|i| word(image, at + 8 * i))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A request as a kernel's image has it: response 0, then the argument.
    pub fn request(feature: Feature, argument: u64) -> Vec<u8> {
        let id = IDS[feature as usize];
        [COMMON[0], COMMON[1], id[0], id[1], 0, 0, argument].iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    pub fn revision(n: u64) -> Vec<u8> {
        [BASE_REVISION[0], BASE_REVISION[1], n].iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    pub fn marks(inside: &[u8]) -> Vec<u8> {
        let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        [bytes(&START), inside.to_vec(), bytes(&END)].concat()
    }

    #[test]
    fn finds_and_answers() {
        let mut image = [revision(2), vec![0; 24], request(Feature::StackSize, 0x8000)].concat();
        let requests = Requests::scan(&image).unwrap();
        assert!(requests.wants(Feature::StackSize) && !requests.wants(Feature::Rsdp));
        assert_eq!(requests.argument(&image, Feature::StackSize), Some(0x8000));
        requests.answer(&mut image, Feature::StackSize, 7);
        requests.answer(&mut image, Feature::Rsdp, 8);
        requests.accept(&mut image);
        assert_eq!((word(&image, 16), word(&image, 48 + 40)), (0, 7));
        assert_eq!(image.iter().filter(|&&b| b == 8).count(), 0);
    }

    #[test]
    fn keeps_to_the_delimiters() {
        let outside = request(Feature::Rsdp, 0);
        let inside = marks(&[revision(2), request(Feature::Date, 0)].concat());
        let requests = Requests::scan(&[outside.clone(), inside, outside].concat()).unwrap();
        assert!(requests.wants(Feature::Date) && !requests.wants(Feature::Rsdp));
    }

    #[test]
    fn refuses() {
        let twice = [revision(2), request(Feature::Date, 0), request(Feature::Date, 0)].concat();
        assert_eq!(Requests::scan(&twice).unwrap_err(), Error::Twice(Feature::Date));
        assert_eq!(Requests::scan(&revision(3)).unwrap_err(), Error::Revision);
        assert_eq!(Requests::scan(&[]).unwrap_err(), Error::Revision);
    }

    #[test]
    fn features_and_ids_are_in_one_order() {
        assert!(FEATURE.iter().enumerate().all(|(i, f)| *f as usize == i));
    }

    proptest! {
        #[test]
        fn a_cut_image_is_survived(keep in 0usize..150, shift in 0usize..9) {
            let image = [vec![0; shift], revision(2), request(Feature::Date, 1), marks(&[])].concat();
            if let Ok(requests) = Requests::scan(&image[..keep.min(image.len())]) {
                let mut image = image[..keep.min(image.len())].to_vec();
                requests.answer(&mut image, Feature::Date, 1);
                requests.accept(&mut image);
                let _ = requests.argument(&image, Feature::Date);
            }
        }
    }
}
