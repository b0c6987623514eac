//! Unpredictable numbers from one seed: SipHash-2-4 as a pseudo-random function of a counter.

use siphasher::sip::SipHasher24;

#[derive(Clone, Debug)]
pub struct Random {
    function: SipHasher24,
    counter: u64,
    cheap: u64,
}

impl Random {
    /// `seed` must be fresh for each start of the task.
    pub fn new(seed: &[u8; 32]) -> Self {
        let (halves, _) = seed.as_chunks::<16>();
        let mix = SipHasher24::new_with_key(&halves[0]);
        let half_key = |tag: u8| {
            let mut message = [tag; 17];
            message[..16].copy_from_slice(&halves[1]);
            mix.hash(&message)
        };
        Random {
            function: SipHasher24::new_with_keys(half_key(1), half_key(2)),
            counter: 0,
            cheap: half_key(3),
        }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.counter += 1;
        self.function.hash(&self.counter.to_le_bytes())
    }

    pub fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    /// Cheap: good enough where a guess does no harm.
    pub fn next_u16(&mut self) -> u16 {
        // PCG's generator; its upper bits are the good ones.
        self.cheap = self.cheap.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.cheap >> 48) as u16
    }

    pub fn key(&mut self) -> (u64, u64) {
        (self.next_u64(), self.next_u64())
    }
}
