//! Topic names and filters (MQTT 3.1.1, section 4.7).

/// A name to publish to: not empty, no wildcards. (UTF-8 and U+0000 were checked by the codec.)
pub fn is_name(topic: &str) -> bool {
    !topic.is_empty() && !topic.bytes().any(|b| b == b'+' || b == b'#')
}

/// A filter to subscribe to: `+` fills its level, `#` fills the last one.
pub fn is_filter(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        match level {
            "+" => {}
            "#" => return levels.peek().is_none(),
            _ if level.contains(['+', '#']) => return false,
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
    let mut name = name.split('/');
    for level in filter.split('/') {
        match (level, name.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
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
