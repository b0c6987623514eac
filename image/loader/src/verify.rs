//! Who signed a package: minisign's format (prehashed "ED" signatures), read strictly. See `docs/package.md`.
//!
//! Stricter than minisign itself: one spelling of each line, canonical base64, nothing before, between or after, and
//! `verify_strict` for the curve. So no bit of a file can change without a refusal.

use core::fmt;

use base64ct::{Base64, Encoding};
use blake2::{Blake2b512, Digest};
use ed25519_dalek::{Signature, VerifyingKey};
use ipc::package::{self, Arch, Package};

/// First line of the trailer, without its line break.
pub const UNTRUSTED_COMMENT: &str = "untrusted comment: signature of an urMQTT package";
pub const TRUSTED_PREFIX: &str = "trusted comment: ";
/// Most bytes of the trusted comment.
pub const MAX_COMMENT: usize = 256;

const SIGNATURE_BYTES: usize = 64;

/// A minisign public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub id: [u8; 8],
    key: VerifyingKey,
}

/// What the signature says besides "these bytes".
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a> {
    pub package: Package<'a>,
    pub trusted_comment: &'a str,
}

/// Why a file was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no file.
    NoPackage,
    /// Nothing follows the payload.
    NoSignature,
    /// What follows the payload isn't a signature as `docs/package.md` spells it.
    SignatureFormat,
    /// Signed with another key than the trusted one.
    ForeignKey,
    /// The payload isn't what was signed.
    BadSignature,
    /// The trusted comment isn't what was signed.
    BadComment,
    /// Signed by us, but for another machine.
    WrongArch(Arch),
    Package(package::Error),
    /// The trusted public key isn't one.
    TrustedKey,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoPackage => f.write_str("there is no package"),
            Refusal::NoSignature => f.write_str("package has no signature"),
            Refusal::SignatureFormat => f.write_str("package's signature is malformed"),
            Refusal::ForeignKey => f.write_str("package is signed with a foreign key"),
            Refusal::BadSignature => {
                f.write_str("package does not match its signature: it was changed or damaged")
            }
            Refusal::BadComment => f.write_str("signature's comment was changed or damaged"),
            Refusal::WrongArch(arch) => write!(f, "package is for {}", arch.name()),
            Refusal::Package(error) => error.fmt(f),
            Refusal::TrustedKey => f.write_str("the trusted public key is malformed"),
        }
    }
}

impl core::error::Error for Refusal {}

impl PublicKey {
    /// From the text of a minisign public key file: a comment line and the key's line.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let line = text.lines().nth(1).ok_or(Refusal::TrustedKey)?;
        let bytes: [u8; 42] = decode(line.trim_end()).ok_or(Refusal::TrustedKey)?;
        let (algorithm, rest) = bytes.split_at(2);
        let (id, key) = rest.split_at(8);
        if algorithm != b"Ed" {
            return Err(Refusal::TrustedKey);
        }
        let key = key.try_into().map_err(|_| Refusal::TrustedKey)?;
        let key = VerifyingKey::from_bytes(key).map_err(|_| Refusal::TrustedKey)?;
        if key.is_weak() {
            return Err(Refusal::TrustedKey);
        }
        Ok(PublicKey { id: id.try_into().map_err(|_| Refusal::TrustedKey)?, key })
    }
}

/// The package in a file, if `key` signed it, for `arch` (or for any machine). `file` must be 8-byte aligned.
pub fn verify<'a>(file: &'a [u8], key: &PublicKey, arch: Option<Arch>) -> Result<Verified<'a>, Refusal> {
    let (payload, trailer) = package::split(file).map_err(Refusal::Package)?;
    let trailer = Trailer::parse(trailer)?;
    if trailer.key_id != key.id {
        return Err(Refusal::ForeignKey);
    }
    let hash = Blake2b512::digest(payload);
    let signature = Signature::from_bytes(&trailer.signature);
    key.key.verify_strict(&hash, &signature).map_err(|_| Refusal::BadSignature)?;

    let mut signed = [0; SIGNATURE_BYTES + MAX_COMMENT];
    let end = SIGNATURE_BYTES + trailer.comment.len();
    signed[..SIGNATURE_BYTES].copy_from_slice(&trailer.signature);
    signed
        .get_mut(SIGNATURE_BYTES..end)
        .ok_or(Refusal::SignatureFormat)?
        .copy_from_slice(trailer.comment.as_bytes());
    let global = Signature::from_bytes(&trailer.global);
    key.key.verify_strict(&signed[..end], &global).map_err(|_| Refusal::BadComment)?;

    let package = Package::parse(payload).map_err(Refusal::Package)?;
    if arch.is_some_and(|arch| arch != package.arch()) {
        return Err(Refusal::WrongArch(package.arch()));
    }
    Ok(Verified { package, trusted_comment: trailer.comment })
}

struct Trailer<'a> {
    key_id: [u8; 8],
    signature: [u8; SIGNATURE_BYTES],
    comment: &'a str,
    global: [u8; SIGNATURE_BYTES],
}

impl<'a> Trailer<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        // Some carriers pad what they load with zeros; a file that is all there has none.
        if bytes.iter().all(|&b| b == 0) {
            return Err(Refusal::NoSignature);
        }
        Self::lines(bytes).ok_or(Refusal::SignatureFormat)
    }

    fn lines(bytes: &'a [u8]) -> Option<Self> {
        let text = core::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let mut lines = text.split('\n');
        if lines.next()? != UNTRUSTED_COMMENT {
            return None;
        }
        let first: [u8; 74] = decode(lines.next()?)?;
        let comment = lines.next()?.strip_prefix(TRUSTED_PREFIX)?;
        let global = decode(lines.next()?)?;
        let printable = comment.bytes().all(|b| (b' '..=b'~').contains(&b));
        if lines.next().is_some() || !printable || comment.len() > MAX_COMMENT || first[..2] != *b"ED" {
            return None;
        }
        let key_id = first[2..10].try_into().ok()?;
        let signature = first[10..].try_into().ok()?;
        Some(Trailer { key_id, signature, comment, global })
    }
}

/// Exactly `N` bytes of canonical base64.
fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let len = Base64::decode(text, &mut bytes).ok()?.len();
    (len == N).then_some(bytes)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use ipc::package::{KERNEL, Kind, Layout, MANIFEST, Meta, Part};
    use minisign::KeyPair;
    use proptest::prelude::*;
    use std::io::Cursor;
    use std::sync::OnceLock;

    /// A package's file in memory that is aligned as words are.
    #[derive(Clone)]
    pub struct File {
        words: Vec<u64>,
        len: usize,
    }

    impl File {
        pub fn new(bytes: &[u8]) -> Self {
            let mut file = File { words: vec![0; bytes.len().div_ceil(8)], len: bytes.len() };
            file.bytes_mut().copy_from_slice(bytes);
            file
        }
        pub fn bytes(&self) -> &[u8] {
            &zerocopy::IntoBytes::as_bytes(&self.words[..])[..self.len]
        }
        pub fn bytes_mut(&mut self) -> &mut [u8] {
            &mut zerocopy::IntoBytes::as_mut_bytes(&mut self.words[..])[..self.len]
        }
    }

    fn keys() -> &'static (KeyPair, PublicKey) {
        static KEYS: OnceLock<(KeyPair, PublicKey)> = OnceLock::new();
        KEYS.get_or_init(key_pair)
    }

    fn key_pair() -> (KeyPair, PublicKey) {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let key = PublicKey::parse(&pair.pk.to_box().unwrap().to_string()).unwrap();
        (pair, key)
    }

    pub fn payload(arch: Arch, command_line: &str, kernel: &[u8]) -> Vec<u8> {
        let parts = [
            Part { kind: Kind::Kernel, name: KERNEL, bytes: kernel },
            Part { kind: Kind::Manifest, name: MANIFEST, bytes: &[7; 300] },
        ];
        let mut layout = Layout::new(parts.len());
        for part in &parts {
            layout.place(part.bytes.len() as u64);
        }
        let mut file = File::new(&vec![0; layout.payload_len() as usize]);
        let meta = Meta { arch, image_version: 3, command_line };
        package::write(&meta, &parts, |_| [0; 32], file.bytes_mut()).unwrap();
        file.bytes().to_vec()
    }

    /// As the builder signs.
    fn signed(pair: &KeyPair, payload: &[u8], comment: &str) -> File {
        let signature = minisign::sign(
            Some(&pair.pk),
            &pair.sk,
            Cursor::new(payload),
            Some(comment),
            UNTRUSTED_COMMENT.strip_prefix("untrusted comment: "),
        );
        File::new(&[payload, signature.unwrap().to_string().as_bytes()].concat())
    }

    fn sample() -> &'static File {
        static SAMPLE: OnceLock<File> = OnceLock::new();
        SAMPLE.get_or_init(|| signed(&keys().0, &payload(Arch::X86_64, "", &[1; 5000]), "urmqtt 3 x86_64"))
    }

    #[test]
    fn accepts_what_minisign_signed() {
        let verified = verify(sample().bytes(), &keys().1, Some(Arch::X86_64)).unwrap();
        assert_eq!(verified.trusted_comment, "urmqtt 3 x86_64");
        assert_eq!(verified.package.kernel(), [1; 5000]);
    }

    #[test]
    fn refuses_with_the_reason() {
        let (pair, key) = keys();
        let good = sample().bytes();
        let payload_len = package::split(good).unwrap().0.len();
        let refusal = |file: &[u8]| verify(File::new(file).bytes(), key, Some(Arch::X86_64)).unwrap_err();
        assert_eq!(refusal(&good[..payload_len]), Refusal::NoSignature);
        assert_eq!(refusal(&[&good[..payload_len], &[0; 100]].concat()), Refusal::NoSignature);
        assert_eq!(refusal(&good[..payload_len - 1]), Refusal::Package(package::Error::Truncated));
        assert_eq!(refusal(&good[..good.len() - 1]), Refusal::SignatureFormat);
        assert_eq!(refusal(&[good, b"\n"].concat()), Refusal::SignatureFormat);
        assert_eq!(refusal(&[]), Refusal::Package(package::Error::Truncated));
        assert_eq!(refusal(&[0x7f; 9000]), Refusal::Package(package::Error::Magic));

        let foreign = signed(&key_pair().0, &good[..payload_len], "");
        assert_eq!(refusal(foreign.bytes()), Refusal::ForeignKey);
        let mut forged = foreign.clone();
        let trailer = &mut forged.bytes_mut()[payload_len..];
        // Our key's id in front of the foreign signature: 10 bytes are 14 characters.
        let at = UNTRUSTED_COMMENT.len() + 1;
        trailer[at..at + 14].copy_from_slice(&good[payload_len..][at..at + 14]);
        assert_eq!(refusal(forged.bytes()), Refusal::BadSignature);

        let arm = signed(pair, &payload(Arch::Aarch64, "", &[1; 5000]), "");
        assert_eq!(refusal(arm.bytes()), Refusal::WrongArch(Arch::Aarch64));
        assert!(verify(arm.bytes(), key, None).is_ok());
    }

    #[test]
    fn comment_is_bounded() {
        let (pair, key) = keys();
        let payload = payload(Arch::X86_64, "", &[1; 5000]);
        let with = |n| verify(signed(pair, &payload, &"c".repeat(n)).bytes(), key, None).map(|_| ());
        assert_eq!(with(MAX_COMMENT), Ok(()));
        assert_eq!(with(MAX_COMMENT + 1), Err(Refusal::SignatureFormat));
    }

    /// A bit of each byte of the signature, and of the header.
    #[test]
    fn a_flipped_bit_in_each_byte_is_refused() {
        let good = sample();
        let payload_len = package::split(good.bytes()).unwrap().0.len();
        let mut file = good.clone();
        for at in (payload_len..good.len).chain((0..600).step_by(7)) {
            file.bytes_mut()[at] ^= 1u8 << (at % 8);
            assert!(verify(file.bytes(), &keys().1, None).is_err(), "byte {at}");
            file.bytes_mut()[at] ^= 1u8 << (at % 8);
        }
        assert!(verify(file.bytes(), &keys().1, None).is_ok());
    }

    #[test]
    fn malformed_keys_are_refused() {
        let text = keys().0.pk.to_box().unwrap().to_string();
        assert!(PublicKey::parse(&text).is_ok());
        assert!(PublicKey::parse(&text.replace('\n', "\r\n")).is_ok());
        for bad in ["", "untrusted comment: x\n", "a\nRWQ=\n", &text[..text.len() - 9]] {
            assert_eq!(PublicKey::parse(bad).unwrap_err(), Refusal::TrustedKey);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_flipped_bit_anywhere_is_refused(at: prop::sample::Index, bit in 0u32..8) {
            let mut file = sample().clone();
            let at = at.index(file.len);
            file.bytes_mut()[at] ^= 1u8 << bit;
            prop_assert!(verify(file.bytes(), &keys().1, None).is_err());
        }

        #[test]
        fn any_trailer_is_survived(trailer in proptest::collection::vec(any::<u8>(), 0..1100)) {
            let payload_len = package::split(sample().bytes()).unwrap().0.len();
            let file = [&sample().bytes()[..payload_len], &trailer[..]].concat();
            prop_assert!(verify(File::new(&file).bytes(), &keys().1, None).is_err());
        }
    }
}
