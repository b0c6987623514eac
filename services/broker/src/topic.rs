//! Topic names and filters (MQTT 3.1.1, section 4.7).

/// The levels of a topic name or filter.
pub fn levels(topic: &str) -> impl Iterator<Item = &[u8]> {
    topic.as_bytes().split(|&b| b == b'/')
}

/// Levels that a topic may have at most.
pub const MAX_LEVELS: usize = 64;

/// A topic name or filter cut into its levels, once for all who look at them.
#[derive(Clone, Debug)]
pub struct Topic<'a> {
    text: &'a str,
    count: usize,
    /// Where each level ends.
    ends: [u16; MAX_LEVELS],
}

impl<'a> Topic<'a> {
    /// `None`: more than `most` levels. The text is at most 65535 bytes long.
    pub fn split(text: &'a str, most: usize) -> Option<Self> {
        let mut topic = Topic { text, count: 0, ends: [0; MAX_LEVELS] };
        let most = most.min(MAX_LEVELS);
        let mut rest = text.as_bytes();
        let mut at = 0;
        while let Some((word, after)) = rest.split_first_chunk() {
            let mut found = find_byte(*word, b'/');
            while found != 0 {
                topic.push(at + found.trailing_zeros() as usize / 8, most)?;
                found &= found - 1;
            }
            (rest, at) = (after, at + 8);
        }
        for &byte in rest {
            if byte == b'/' {
                topic.push(at, most)?;
            }
            at += 1;
        }
        topic.push(at, most)?;
        Some(topic)
    }

    #[inline]
    fn push(&mut self, end: usize, most: usize) -> Option<()> {
        *self.ends.get_mut(self.count).filter(|_| self.count < most)? = end as u16;
        self.count += 1;
        Some(())
    }

    pub fn text(&self) -> &'a str {
        self.text
    }

    pub fn depth(&self) -> usize {
        self.count
    }

    #[inline]
    pub fn levels(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.text.as_bytes();
        let mut start = 0;
        self.ends[..self.count].iter().map(move |&end| {
            let level = bytes.get(start..end as usize).unwrap_or_default();
            start = end as usize + 1;
            level
        })
    }
}

/// A name to publish to: not empty, no wildcards, no U+0000.
pub fn is_name(topic: &str) -> bool {
    let bytes = topic.as_bytes();
    let clean = |word: &[u8; 8]| [b'+', b'#', 0].iter().all(|&b| find_byte(*word, b) == 0);
    match bytes.last_chunk() {
        // The last word overlaps the one before.
        Some(last) => clean(last) && bytes.as_chunks().0.iter().all(clean),
        None => !bytes.is_empty() && !bytes.iter().any(|b| b"+#\0".contains(b)),
    }
}

/// The high bit of each byte of the result says that this byte of `word` is `byte`. No carry from one to the next.
fn find_byte(word: [u8; 8], byte: u8) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([0x7f; 8]);
    let x = u64::from_le_bytes(word) ^ u64::from_ne_bytes([byte; 8]);
    !(((x & LOW) + LOW) | x | LOW)
}

/// A filter to subscribe to: `+` fills its level, `#` fills the last one.
pub fn is_filter(filter: &str) -> bool {
    let mut levels = levels(filter).peekable();
    while let Some(level) = levels.next() {
        match level {
            b"+" => {}
            b"#" => return levels.peek().is_none(),
            _ if level.iter().any(|b| b"+#".contains(b)) => return false,
            _ => {}
        }
    }
    !filter.is_empty()
}

/// Names that belong to the server, which wildcards in the first level don't match (section 4.7.2).
pub fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$')
}

/// The naive definition of matching, which the topic tree is tested against.
pub fn matches(filter: &str, name: &str) -> bool {
    if is_reserved(name) && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut name = levels(name);
    for level in levels(filter) {
        match (level, name.next()) {
            (b"#", _) => return true,
            (b"+", Some(_)) => {}
            (level, Some(part)) if level == part => {}
            _ => return false,
        }
    }
    name.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_what_stands_between_slashes() {
        for topic in ["", "/", "a", "a/b", "/a//b/", "é/漢"] {
            assert!(levels(topic).eq(topic.split('/').map(str::as_bytes)), "{topic}");
        }
        assert!(Topic::split("a/b/c", 2).is_none() && Topic::split("a/b", 2).is_some());
        assert!(Topic::split(&"/".repeat(MAX_LEVELS), 100).is_none());
    }

    proptest::proptest! {
        #[test]
        fn names_hold_no_wildcard_and_no_nul(topic in "[a/é\u{ab}\u{80}+#\0\x01*,\"$]{0,20}") {
            let plain = !topic.is_empty() && !topic.contains(['+', '#', '\0']);
            proptest::prop_assert_eq!(is_name(&topic), plain);
        }

        #[test]
        fn a_split_topic_has_the_same_levels(topic in "[a/é\u{ae}\u{2f80}0.]{0,40}") {
            let split = Topic::split(&topic, MAX_LEVELS).unwrap();
            proptest::prop_assert!(split.levels().eq(levels(&topic)));
        }
    }

    #[test]
    fn filters_are_checked() {
        for good in ["a", "/", "+", "#", "a/+/b", "a/#", "+/+", "/+", "a//b", " "] {
            assert!(is_filter(good), "{good}");
        }
        for bad in ["", "a#", "a/b#", "#/a", "a/#/b", "a+", "+a", "a/+b/c", "##", "a/##", "++"] {
            assert!(!is_filter(bad), "{bad}");
        }
    }

    #[test]
    fn matching_follows_the_examples_of_the_specification() {
        for (filter, name) in [
            ("sport/tennis/player1/#", "sport/tennis/player1"),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
            ("sport/#", "sport"),
            ("#", "a/b"),
            ("sport/tennis/+", "sport/tennis/player1"),
            ("sport/+", "sport/"),
            ("+/+", "/finance"),
            ("/+", "/finance"),
            ("$SYS/#", "$SYS/x"),
            ("$SYS/monitor/+", "$SYS/monitor/Clients"),
        ] {
            assert!(matches(filter, name), "{filter} {name}");
        }
        for (filter, name) in [
            ("sport/tennis/+", "sport/tennis/player1/ranking"),
            ("sport/+", "sport"),
            ("+", "/finance"),
            ("#", "$SYS/x"),
            ("+/monitor/Clients", "$SYS/monitor/Clients"),
            ("a/b", "a"),
            ("a", "a/b"),
        ] {
            assert!(!matches(filter, name), "{filter} {name}");
        }
    }
}
