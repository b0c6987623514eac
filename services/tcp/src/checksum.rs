//! The Internet checksum (RFC 1071).

/// A ones' complement sum in the machine's byte order, of 64-bit words, not yet folded. The order doesn't matter to the
/// result as long as it is written back in the same order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// With the carry around the end.
    fn add(self, word: u64) -> Self {
        let (sum, carry) = self.0.overflowing_add(word);
        Sum(sum + carry as u64)
    }

    /// Adds bytes that start at an even position.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words.iter().fold(self, |sum, word| sum.add(u64::from_ne_bytes(*word)));
        if rest.is_empty() {
            return sum;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        sum.add(u64::from_ne_bytes(last))
    }

    /// Adds a 32-bit number in network order.
    pub fn word(self, word: u32) -> Self {
        self.add(word.to_be() as u64)
    }

    /// The pseudo header of TCP and UDP (RFC 9293 3.1).
    pub fn pseudo(source: u32, destination: u32, protocol: u8, len: usize) -> Self {
        Sum(0).word(source).word(destination).word((protocol as u32) << 16 | len as u32 & 0xffff)
    }

    fn fold(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 32) + (sum & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        ((sum >> 16) + (sum & 0xffff)) as u16
    }

    /// The bytes of the checksum field.
    pub fn finish(self) -> [u8; 2] {
        (!self.fold()).to_ne_bytes()
    }

    /// True when the sum was taken over data with a right checksum in it.
    pub fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 section 3.
    #[test]
    fn rfc1071_example() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().bytes(&data).finish(), [!0xdd, !0xf2]);
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_the_definition(data: Vec<u8>) {
            let ours = u16::from_be_bytes(Sum::default().bytes(&data).finish());
            let mut sum = 0u32;
            for pair in data.chunks(2) {
                sum += u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]) as u32;
            }
            while sum >> 16 != 0 {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            proptest::prop_assert_eq!(ours, !(sum as u16));
        }

        #[test]
        fn a_flipped_bit_is_found(mut data in proptest::collection::vec(0u8.., 2..200), at: usize, bit in 0u8..8) {
            data.truncate(data.len() & !1);
            data[..2].fill(0);
            let sum = Sum::default().bytes(&data).finish();
            data[..2].copy_from_slice(&sum);
            proptest::prop_assert!(Sum::default().bytes(&data).is_valid());
            let at = at % data.len();
            data[at] ^= 1u8 << bit;
            proptest::prop_assert!(!Sum::default().bytes(&data).is_valid());
        }
    }
}
