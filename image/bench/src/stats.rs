//! Medians, spreads, ratios and histograms.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What several rounds gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Nothing of no values. The median of an even number of values lies between the middle two.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<_> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Spread { median, min, max })
    }

    /// This median as a multiple of the other one.
    pub fn ratio(&self, to: &Spread) -> Option<f64> {
        let ratio = self.median / to.median;
        ratio.is_finite().then_some(ratio)
    }
}

/// A number with three digits that count, and a k, M or G.
pub fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 999.5e6 => (value / 1e9, " G"),
        v if v >= 999.5e3 => (value / 1e6, " M"),
        // Four digits are still read at a glance.
        v if v >= 9_999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let decimals = match scaled.abs() {
        v if v == 0.0 || v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    format!("{scaled:.decimals$}{suffix}")
}

/// With its unit; a k, M or G goes with that.
pub fn with_unit(value: f64, unit: &str) -> String {
    let number = short(value);
    let joined = unit.is_empty() || unit.starts_with('/') || number.ends_with(char::is_alphabetic);
    if joined { number + unit } else { format!("{number} {unit}") }
}

/// Times in microseconds.
pub type Times = Histogram<u64>;

/// Up to a minute, three digits. What is longer counts as a minute.
pub fn times() -> Times {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are right")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        let spread = |values: &[f64]| Spread::of(values).map(|s| (s.median, s.min, s.max));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[f64::NAN, 5.0]), Some((5.0, 5.0, 5.0)));
    }

    #[test]
    fn ratio_of_medians() {
        let (own, peer) = (Spread::of(&[5.0]).unwrap(), Spread::of(&[10.0]).unwrap());
        assert_eq!(own.ratio(&peer), Some(0.5));
        assert_eq!(own.ratio(&Spread::of(&[0.0]).unwrap()), None);
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.01234, "0.012"),
            (1.2345, "1.23"),
            (12.345, "12.3"),
            (123.45, "123"),
            (1234.5, "1234"),
            (12345.0, "12.3 k"),
            (1_234_500.0, "1.23 M"),
            (2.5e9, "2.50 G"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        let units = [(3e6, "B", "3.00 MB"), (512.0, "B", "512 B"), (2.0, "/s", "2.00/s"), (1.0, "", "1.00")];
        for (value, unit, text) in units {
            assert_eq!(with_unit(value, unit), text);
        }
    }
}
