//! Traffic secrets and the keys derived from them (RFC 8446, 7.1 to 7.3).

use alloc::boxed::Box;
use ring::aead::{self, LessSafeKey, UnboundKey};
use ring::hkdf;
use zeroize::Zeroize;

/// The cipher suites of TLS 1.3 that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Suite {
    fn aead(self) -> &'static aead::Algorithm {
        match self {
            Suite::Aes128Gcm => &aead::AES_128_GCM,
            Suite::Aes256Gcm => &aead::AES_256_GCM,
            Suite::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    fn hkdf(self) -> hkdf::Algorithm {
        match self {
            Suite::Aes256Gcm => hkdf::HKDF_SHA384,
            Suite::Aes128Gcm | Suite::ChaCha20Poly1305 => hkdf::HKDF_SHA256,
        }
    }

    /// Bytes of a traffic secret: the output of the suite's hash.
    pub fn secret_len(self) -> usize {
        if self == Suite::Aes256Gcm { LONG } else { SHORT }
    }
}

const SHORT: usize = 32;
const LONG: usize = 48;

/// Which way a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Receive = 0,
    Send = 1,
}

/// The two traffic secrets of a connection, by [`Direction`]. The suite with long ones is rare and pays with a heap block, so that a
/// connection of the others stays small.
pub struct Secrets(Stored);

enum Stored {
    Short([[u8; SHORT]; 2]),
    Long(Box<[[u8; LONG]; 2]>),
}

impl Secrets {
    /// `None` when a length isn't the suite's.
    pub fn new(suite: Suite, receive: &[u8], send: &[u8]) -> Option<Self> {
        Some(Secrets(match suite.secret_len() {
            SHORT => Stored::Short([receive.try_into().ok()?, send.try_into().ok()?]),
            _ => Stored::Long(Box::new([receive.try_into().ok()?, send.try_into().ok()?])),
        }))
    }

    fn get(&mut self, direction: Direction) -> &mut [u8] {
        match &mut self.0 {
            Stored::Short(secrets) => &mut secrets[direction as usize],
            Stored::Long(secrets) => &mut secrets[direction as usize],
        }
    }

    /// The key of the present secret.
    pub fn key(&mut self, suite: Suite, direction: Direction) -> Key {
        Key::derive(suite, self.get(direction))
    }

    /// The next secret (RFC 8446, 7.2).
    pub fn update(&mut self, suite: Suite, direction: Direction) {
        let secret = self.get(direction);
        let prk = hkdf::Prk::new_less_safe(suite.hkdf(), secret);
        expand(&prk, b"tls13 traffic upd", secret);
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.get(Direction::Receive).zeroize();
        self.get(Direction::Send).zeroize();
    }
}

/// Key and IV of one direction.
pub struct Key {
    aead: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
}

impl Key {
    fn derive(suite: Suite, secret: &[u8]) -> Self {
        let prk = hkdf::Prk::new_less_safe(suite.hkdf(), secret);
        let (mut key, mut iv) = ([0; 32], [0; aead::NONCE_LEN]);
        let bytes = &mut key[..suite.aead().key_len()];
        expand(&prk, b"tls13 key", bytes);
        expand(&prk, b"tls13 iv", &mut iv);
        let aead = LessSafeKey::new(UnboundKey::new(suite.aead(), bytes).expect("the length is the suite's"));
        key.zeroize();
        Key { aead, iv }
    }

    /// The record number goes into the nonce (RFC 8446, 5.3).
    fn nonce(&self, number: u64) -> aead::Nonce {
        let mut nonce = self.iv;
        for (byte, n) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= n;
        }
        aead::Nonce::assume_unique_for_key(nonce)
    }

    /// Decrypts `body` (ciphertext and tag) in place. `None`: not sealed with this key, number and header.
    pub fn open<'b>(&self, number: u64, header: &[u8], body: &'b mut [u8]) -> Option<&'b mut [u8]> {
        self.aead.open_in_place(self.nonce(number), aead::Aad::from(header), body).ok()
    }

    /// Encrypts `text` in place and gives the tag.
    pub fn seal(&self, number: u64, header: &[u8], text: &mut [u8]) -> Option<aead::Tag> {
        self.aead.seal_in_place_separate_tag(self.nonce(number), aead::Aad::from(header), text).ok()
    }
}

/// HKDF-Expand-Label with an empty context; `label` with its prefix.
fn expand(prk: &hkdf::Prk, label: &[u8], out: &mut [u8]) {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let head = [(out.len() >> 8) as u8, out.len() as u8, label.len() as u8];
    let info: [&[u8]; 3] = [&head, label, &[0]];
    prk.expand(&info, Length(out.len())).and_then(|okm| okm.fill(out)).expect("shorter than 255 hashes");
}
