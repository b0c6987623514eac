//! Values of the TOML files, checked while they are read: so the error has the line and the key.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Number<MIN, MAX> {
    /// For defaults.
    pub const fn new(value: u64) -> Self {
        assert!(MIN <= value && value <= MAX);
        Number(value)
    }

    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Number<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = i64::deserialize(d)?;
        match u64::try_from(value) {
            Ok(v) if (MIN..=MAX).contains(&v) => Ok(Number(v)),
            _ => Err(D::Error::custom(format!("{value} is out of range: {MIN} to {MAX}"))),
        }
    }
}

/// Bytes from `MIN` to `MAX`: a number, or a text such as `"64 KiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Size<MIN, MAX> {
    /// For defaults.
    pub const fn new(value: u64) -> Self {
        assert!(MIN <= value && value <= MAX);
        Size(value)
    }

    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Size<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = d.deserialize_any(Bytes)?;
        if !(MIN..=MAX).contains(&value) {
            let (is, min, max) = (bytes(value), bytes(MIN), bytes(MAX));
            return Err(D::Error::custom(format!("{is} is out of range: {min} to {max}")));
        }
        Ok(Size(value))
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a size: a number of bytes, or a text such as \"64 KiB\" (B, KiB, MiB, GiB)")
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<u64, E> {
        u64::try_from(v).map_err(|_| E::invalid_value(Unexpected::Signed(v), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let wrong = || E::invalid_value(Unexpected::Str(text), &self);
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = match unit.trim_start() {
            "B" => 1u64,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(wrong()),
        };
        number.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(wrong)
    }
}

/// A number of bytes as text, in the largest unit that leaves it whole.
pub fn bytes(n: u64) -> String {
    match n {
        0 => "0 B".into(),
        _ if n.is_multiple_of(1 << 30) => format!("{} GiB", n >> 30),
        _ if n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        _ if n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        _ => format!("{n} B"),
    }
}

/// A name of a task, link, region or interrupt: 1 to 15 of `a-z 0-9 - .`, first a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let letters =
            text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        if !letters || !first || text.len() > 15 {
            let rule = "a name has 1 to 15 of a-z, 0-9, '-' and '.', and starts with a letter";
            return Err(format!("{text:?} is no name: {rule}"));
        }
        Ok(Name(text.into()))
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// A number, or the name of a setting of the user's configuration that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    Number(u32),
    Setting(String),
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number of buffers, or the name of a setting in [pools]")
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Count, E> {
        match u32::try_from(v) {
            Ok(n) if (1..=1 << 20).contains(&n) => Ok(Count::Number(n)),
            _ => Err(E::custom(format!("{v} is out of range: 1 to {}", 1 << 20))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Count, E> {
        Ok(Count::Setting(text.into()))
    }
}
