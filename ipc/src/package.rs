//! The signed package: one file an architecture that holds all that runs after the loader. See `docs/package.md`.
//!
//! ```text
//! payload   header, index, zero padding to a page          signed, page aligned, used in place
//!           entry 0, zero padding to a page
//!           entry 1, ...
//! trailer   the signature in minisign's text format        see the loader's `verify`
//! ```
//!
//! Nothing but the signature says that these bytes are ours, so this module takes them for hostile: [`split`] trusts one
//! length to find the signature, and [`Package::parse`] checks all of the rest. The layout is canonical: entries
//! follow each other without holes, padding is zero, every byte has one meaning.

use core::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::abi::PAGE;

pub const MAGIC: [u8; 8] = *b"urmqPK01";
/// Most entries of a package.
pub const MAX_ENTRIES: usize = 1024;
/// Largest payload, bytes: what a loader is ready to hold in memory.
pub const MAX_PAYLOAD: u64 = 256 << 20;
/// Most bytes of the signature text after the payload.
pub const MAX_TRAILER: usize = 1024;
pub const COMMAND_LINE_BYTES: usize = 256;

/// First bytes of the payload; the index follows at once.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    /// An [`Arch`].
    pub arch: u32,
    pub entries: u32,
    /// Bytes of the payload, whole pages.
    pub payload_len: u64,
    /// Rises with every image of an installation: an older one is a roll-back.
    pub image_version: u64,
    /// Printable ASCII, padded with zeros.
    pub command_line: [u8; COMMAND_LINE_BYTES],
    pub reserved: [u8; 32],
}

/// One named span of the payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// A [`Kind`].
    pub kind: u32,
    pub reserved: u32,
    /// Printable ASCII, padded with zeros, unique in the package.
    pub name: [u8; 32],
    /// From the start of the payload, page aligned.
    pub offset: u64,
    pub len: u64,
    /// Of the entry's bytes without padding: lets a service be compared with its own rebuild.
    pub sha256: [u8; 32],
}

/// Architecture by its ELF machine number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Arch {
    X86_64 = 62,
    Aarch64 = 183,
}

impl Arch {
    pub const fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            62 => Self::X86_64,
            183 => Self::Aarch64,
            _ => return None,
        })
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// `kernel`: a static ELF executable.
    Kernel = 1,
    /// `manifest`: a [`crate::manifest::System`].
    Manifest = 2,
    /// `task/NAME/...`: pristine bytes of a segment.
    Segment = 3,
    /// `task/NAME/info`: a [`crate::manifest::info::Info`].
    Info = 4,
    /// First content of another region.
    Data = 5,
}

impl Kind {
    pub const fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            1 => Self::Kernel,
            2 => Self::Manifest,
            3 => Self::Segment,
            4 => Self::Info,
            5 => Self::Data,
            _ => return None,
        })
    }
}

pub const KERNEL: &str = "kernel";
pub const MANIFEST: &str = "manifest";

/// Why bytes are no package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Shorter than a header, or than the header says.
    Truncated,
    /// Doesn't start with [`MAGIC`].
    Magic,
    /// The memory isn't 8-byte aligned.
    Misaligned,
    /// The payload's length is 0, no whole pages, or beyond [`MAX_PAYLOAD`].
    Length,
    /// More than [`MAX_TRAILER`] bytes follow the payload.
    Trailer,
    /// Made for an architecture that doesn't exist.
    Arch,
    /// A text isn't printable ASCII padded with zeros.
    Text,
    /// No entries, too many, or they don't fit.
    Index,
    /// Entry `0` breaks the layout, has a bad kind or name, or one that was there before.
    Entry(u32),
    /// Padding or a reserved field isn't zero.
    Padding,
    /// There isn't exactly one kernel and one manifest.
    Incomplete,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated => f.write_str("package is truncated"),
            Error::Magic => f.write_str("not a package"),
            Error::Misaligned => f.write_str("package lies at a misaligned address"),
            Error::Length => f.write_str("package has an impossible length"),
            Error::Trailer => f.write_str("too many bytes after the package's payload"),
            Error::Arch => f.write_str("package is for an unknown architecture"),
            Error::Text => f.write_str("package has a text that is not printable"),
            Error::Index => f.write_str("package has a bad index"),
            Error::Entry(n) => write!(f, "package entry {n} is bad"),
            Error::Padding => f.write_str("package has bytes where zeros must be"),
            Error::Incomplete => f.write_str("package lacks its kernel or its manifest"),
        }
    }
}

impl core::error::Error for Error {}

/// Payload and trailer of a file. Nothing of the payload is checked but that it can be one.
pub fn split(file: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let (header, _) = Header::read_from_prefix(file).map_err(|_| Error::Truncated)?;
    if header.magic != MAGIC {
        return Err(Error::Magic);
    }
    let len = header.payload_len;
    if len == 0 || len > MAX_PAYLOAD || !len.is_multiple_of(PAGE as u64) {
        return Err(Error::Length);
    }
    let (payload, trailer) = file.split_at_checked(len as usize).ok_or(Error::Truncated)?;
    if trailer.len() > MAX_TRAILER {
        return Err(Error::Trailer);
    }
    Ok((payload, trailer))
}

/// A payload whose header, index and padding are right. What the entries hold is their readers' business.
#[derive(Clone, Copy, Debug)]
pub struct Package<'a> {
    payload: &'a [u8],
    pub header: &'a Header,
    pub entries: &'a [Entry],
}

impl<'a> Package<'a> {
    /// `payload` must be 8-byte aligned, and page aligned if segments are to be mapped in place. Bytes after the
    /// payload's length are not looked at.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        if !(payload.as_ptr() as usize).is_multiple_of(align_of::<Header>()) {
            return Err(Error::Misaligned);
        }
        let (payload, _) = split_any(payload)?;
        let (header, rest) = Header::ref_from_prefix(payload).map_err(|_| Error::Truncated)?;
        Arch::from_number(header.arch).ok_or(Error::Arch)?;
        if header.reserved != [0; 32] {
            return Err(Error::Padding);
        }
        text(&header.command_line)?;
        let count = header.entries as usize;
        if count > MAX_ENTRIES {
            return Err(Error::Index);
        }
        let (entries, _) = <[Entry]>::ref_from_prefix_with_elems(rest, count).map_err(|_| Error::Index)?;
        let package = Package { payload, header, entries };
        package.check()?;
        Ok(package)
    }

    /// Entries lie one after the other, from the index to the end, with zeros between.
    fn check(&self) -> Result<(), Error> {
        let mut end = index_end(self.entries.len());
        for (i, entry) in self.entries.iter().enumerate() {
            let bad = Error::Entry(i as u32);
            let name = text(&entry.name).map_err(|_| bad)?;
            let known = Kind::from_number(entry.kind).is_some();
            let start = end.next_multiple_of(PAGE as u64);
            if !known || name.is_empty() || entry.reserved != 0 || entry.offset != start {
                return Err(bad);
            }
            if self.entries[..i].iter().any(|e| e.name == entry.name) {
                return Err(bad);
            }
            self.zeros(end, start)?;
            end = start.checked_add(entry.len).filter(|&e| e <= self.header.payload_len).ok_or(bad)?;
        }
        if end.next_multiple_of(PAGE as u64) != self.header.payload_len {
            return Err(Error::Length);
        }
        self.zeros(end, self.header.payload_len)?;
        let one = |kind: Kind| self.entries.iter().filter(|e| e.kind == kind as u32).count() == 1;
        if !one(Kind::Kernel) || !one(Kind::Manifest) {
            return Err(Error::Incomplete);
        }
        Ok(())
    }

    fn zeros(&self, start: u64, end: u64) -> Result<(), Error> {
        let padding = self.payload.get(start as usize..end as usize).ok_or(Error::Length)?;
        if padding.iter().all(|&b| b == 0) { Ok(()) } else { Err(Error::Padding) }
    }

    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    pub fn arch(&self) -> Arch {
        // `parse` has seen it.
        Arch::from_number(self.header.arch).unwrap_or(Arch::X86_64)
    }

    pub fn command_line(&self) -> &'a str {
        text(&self.header.command_line).unwrap_or("")
    }

    /// The entry with this kind and name.
    pub fn find(&self, kind: Kind, name: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|e| e.kind == kind as u32 && text(&e.name) == Ok(name))
    }

    /// The bytes of one of this package's entries.
    pub fn bytes(&self, entry: &Entry) -> &'a [u8] {
        let start = entry.offset as usize;
        start.checked_add(entry.len as usize).and_then(|end| self.payload.get(start..end)).unwrap_or(&[])
    }

    pub fn kernel(&self) -> &'a [u8] {
        self.first(Kind::Kernel)
    }

    pub fn manifest(&self) -> &'a [u8] {
        self.first(Kind::Manifest)
    }

    fn first(&self, kind: Kind) -> &'a [u8] {
        self.entries.iter().find(|e| e.kind == kind as u32).map_or(&[], |e| self.bytes(e))
    }
}

impl Entry {
    pub fn name(&self) -> &str {
        text(&self.name).unwrap_or("?")
    }
}

/// As [`split`], with any number of bytes after the payload.
fn split_any(file: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let header = file.get(..size_of::<Header>()).ok_or(Error::Truncated)?;
    let len = Header::read_from_bytes(header).map_err(|_| Error::Truncated)?.payload_len;
    let end = usize::try_from(len).ok().and_then(|l| l.checked_add(MAX_TRAILER)).unwrap_or(usize::MAX);
    split(&file[..file.len().min(end)])
}

/// The text of a field: printable ASCII, then only zeros.
fn text(field: &[u8]) -> Result<&str, Error> {
    let len = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    let (text, rest) = field.split_at(len);
    if !text.iter().all(|b| (b' '..=b'~').contains(b)) || rest.iter().any(|&b| b != 0) {
        return Err(Error::Text);
    }
    core::str::from_utf8(text).map_err(|_| Error::Text)
}

/// A text as a field. `None`: too long, or not printable ASCII.
pub fn field<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut field = [0; N];
    field.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    text.bytes().all(|b| (b' '..=b'~').contains(&b)).then_some(field)
}

fn index_end(entries: usize) -> u64 {
    (size_of::<Header>() + entries * size_of::<Entry>()) as u64
}

/// Where the entries of a package will lie: the manifest must name the segments' offsets before anything is written.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    end: u64,
}

impl Layout {
    /// For a package of so many entries.
    pub fn new(entries: usize) -> Self {
        Layout { end: index_end(entries) }
    }

    /// Offset of the next entry, which has `len` bytes.
    pub fn place(&mut self, len: u64) -> u64 {
        let offset = self.end.next_multiple_of(PAGE as u64);
        self.end = offset + len;
        offset
    }

    pub fn payload_len(&self) -> u64 {
        self.end.next_multiple_of(PAGE as u64)
    }
}

/// What [`write`] puts in the header.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    pub arch: Arch,
    pub image_version: u64,
    pub command_line: &'a str,
}

/// An entry to be written.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub kind: Kind,
    pub name: &'a str,
    pub bytes: &'a [u8],
}

/// Writes the payload into `out`, which must be 8-byte aligned and have just the length, and the parts the order, of
/// [`Layout`]. The result
/// is what [`Package::parse`] accepts, or the error that it would give.
pub fn write(
    meta: &Meta<'_>,
    parts: &[Part<'_>],
    sha256: impl Fn(&[u8]) -> [u8; 32],
    out: &mut [u8],
) -> Result<(), Error> {
    let mut layout = Layout::new(parts.len());
    let mut end = index_end(parts.len()) as usize;
    out.get_mut(..end).ok_or(Error::Length)?.fill(0);
    for (i, part) in parts.iter().enumerate() {
        let start = layout.place(part.bytes.len() as u64) as usize;
        let mut entry = Entry::new_zeroed();
        entry.kind = part.kind as u32;
        entry.name = field(part.name).ok_or(Error::Entry(i as u32))?;
        entry.offset = start as u64;
        entry.len = part.bytes.len() as u64;
        entry.sha256 = sha256(part.bytes);
        out.get_mut(end..start).ok_or(Error::Length)?.fill(0);
        end = start + part.bytes.len();
        out.get_mut(start..end).ok_or(Error::Length)?.copy_from_slice(part.bytes);
        out[index_end(i) as usize..index_end(i + 1) as usize].copy_from_slice(entry.as_bytes());
    }
    if layout.payload_len() != out.len() as u64 {
        return Err(Error::Length);
    }
    out[end..].fill(0);
    let mut header = Header::new_zeroed();
    header.magic = MAGIC;
    header.arch = meta.arch as u32;
    header.entries = parts.len() as u32;
    header.payload_len = layout.payload_len();
    header.image_version = meta.image_version;
    header.command_line = field(meta.command_line).ok_or(Error::Text)?;
    out[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    Package::parse(out).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const META: Meta<'static> = Meta { arch: Arch::X86_64, image_version: 7, command_line: "quiet" };

    fn digest(bytes: &[u8]) -> [u8; 32] {
        [bytes.len() as u8; 32]
    }

    /// Memory for a payload, aligned as a vector of words is.
    fn written(parts: &[Part<'_>]) -> Result<Vec<u64>, Error> {
        let mut layout = Layout::new(parts.len());
        for part in parts {
            layout.place(part.bytes.len() as u64);
        }
        let mut words = vec![u64::MAX; layout.payload_len() as usize / 8];
        write(&META, parts, digest, words.as_mut_bytes())?;
        Ok(words)
    }

    fn sample() -> Vec<u64> {
        written(&[
            Part { kind: Kind::Kernel, name: KERNEL, bytes: &[1; 5000] },
            Part { kind: Kind::Segment, name: "task/tcp/text", bytes: &[2; 4096] },
            Part { kind: Kind::Data, name: "empty", bytes: &[] },
            Part { kind: Kind::Manifest, name: MANIFEST, bytes: &[3; 100] },
        ])
        .unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let words = sample();
        let package = Package::parse(words.as_bytes()).unwrap();
        assert_eq!((package.arch(), package.header.image_version), (Arch::X86_64, 7));
        assert_eq!(package.command_line(), "quiet");
        assert_eq!(package.kernel(), [1; 5000]);
        assert_eq!(package.manifest(), [3; 100]);
        let text = package.find(Kind::Segment, "task/tcp/text").unwrap();
        assert_eq!(
            (package.bytes(text), text.sha256, text.offset % 4096),
            (&[2; 4096][..], digest(&[2; 4096]), 0)
        );
        assert!(package.find(Kind::Data, "task/tcp/text").is_none());
    }

    #[test]
    fn trailer_follows_payload() {
        let words = sample();
        let mut file = words.as_bytes().to_vec();
        file.extend_from_slice(b"signature");
        assert_eq!(split(&file), Ok((words.as_bytes(), &b"signature"[..])));
        assert_eq!(split(&words.as_bytes()[..words.as_bytes().len() - 1]), Err(Error::Truncated));
        assert_eq!(split(b"urmqPK01"), Err(Error::Truncated));
        file.resize(words.as_bytes().len() + MAX_TRAILER + 1, 0);
        assert_eq!(split(&file), Err(Error::Trailer));
    }

    #[test]
    fn writer_refuses_what_the_reader_would() {
        let kernel = Part { kind: Kind::Kernel, name: KERNEL, bytes: &[1] };
        let manifest = Part { kind: Kind::Manifest, name: MANIFEST, bytes: &[2] };
        let twice = Part { kind: Kind::Data, name: KERNEL, bytes: &[] };
        let long = Part { kind: Kind::Data, name: "a-name-of-more-than-thirty-two-bytes", bytes: &[] };
        assert_eq!(written(&[kernel]).unwrap_err(), Error::Incomplete);
        assert_eq!(written(&[kernel, manifest, twice]).unwrap_err(), Error::Entry(2));
        assert_eq!(written(&[kernel, manifest, long]).unwrap_err(), Error::Entry(2));
        assert!(written(&[kernel, manifest]).is_ok());
    }

    #[test]
    fn index_fills_to_its_bound() {
        let names: Vec<String> = (0..MAX_ENTRIES + 1).map(|i| format!("data/{i}")).collect();
        let mut parts: Vec<Part<'_>> =
            names.iter().map(|name| Part { kind: Kind::Data, name, bytes: b"x" }).collect();
        parts[0] = Part { kind: Kind::Kernel, name: KERNEL, bytes: b"k" };
        parts[1] = Part { kind: Kind::Manifest, name: MANIFEST, bytes: b"m" };
        assert_eq!(written(&parts).unwrap_err(), Error::Index);
        parts.pop();
        assert!(written(&parts).is_ok());
    }

    /// Every bit outside of the entries' bytes has one right value, or is one of the header's own.
    #[test]
    fn padding_is_zero() {
        let good = sample();
        for at in [5000 + 4096, 3 * 4096 - 1, 4 * 4096 + 100, 4096 - 1, 320 - 1, 16 + 8 + 8 + 5 + 1] {
            let mut words = good.clone();
            words.as_mut_bytes()[at] = 1;
            assert!(Package::parse(words.as_bytes()).is_err(), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u64>(), 0..600)) {
            let mut words = bytes;
            let _ = Package::parse(words.as_bytes());
            let _ = split(words.as_bytes());
            if let Some(first) = words.first_mut() {
                *first = u64::from_le_bytes(MAGIC);
                let _ = Package::parse(words.as_bytes());
            }
        }

        /// Damage leaves a package that is refused, or one whose entries are within its payload.
        #[test]
        fn damage_stays_in_bounds(at in 0usize..700, value: u8, keep in 0usize..25000) {
            let mut words = sample();
            words.as_mut_bytes()[at] = value;
            let bytes = &words.as_bytes()[..keep.min(words.as_bytes().len())];
            if let Ok(package) = Package::parse(bytes) {
                for entry in package.entries {
                    prop_assert_eq!(package.bytes(entry).len() as u64, entry.len);
                }
            }
        }
    }
}
