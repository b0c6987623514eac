//! Who may publish and subscribe where.
//!
//! A device is confined to the configured patterns, in which a level `{id}` stands for its own identifier. An operator may do
//! everything but publish to the server's own topics (`$…`).

use crate::topic::{self, Topic};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// What a client's certificate makes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    Device,
    Operator,
}

/// A level of a pattern.
#[derive(Debug)]
enum Level {
    Literal(Box<[u8]>),
    /// `{id}`: the client's identifier.
    Id,
    /// `+`: any one level.
    Any,
    /// `#`: this level and all below, and the one above.
    Rest,
}

#[derive(Debug)]
pub struct Acl {
    publish: Vec<Box<[Level]>>,
    subscribe: Vec<Box<[Level]>>,
}

/// A device's name must be usable as one topic level (its certificate's CN could be anything).
pub fn is_device_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('$') && !name.contains(['/', '+', '#', '\0'])
}

/// Whether a pattern of the configuration is one.
pub fn is_pattern(pattern: &str) -> bool {
    topic::is_filter(pattern)
        && pattern.split('/').all(|level| level == "{id}" || !level.contains(['{', '}']))
}

fn compile(pattern: &str) -> Box<[Level]> {
    let level = |level: &[u8]| match level {
        b"{id}" => Level::Id,
        b"+" => Level::Any,
        b"#" => Level::Rest,
        literal => Level::Literal(literal.into()),
    };
    topic::levels(pattern).map(level).collect()
}

impl Acl {
    /// Patterns as [`is_pattern`] allows.
    pub fn new(publish: &[String], subscribe: &[String]) -> Self {
        Acl {
            publish: publish.iter().map(|p| compile(p)).collect(),
            subscribe: subscribe.iter().map(|p| compile(p)).collect(),
        }
    }

    /// `name`: a valid topic name.
    pub fn may_publish(&self, role: Role, id: &[u8], name: &Topic) -> bool {
        let free = role == Role::Operator || self.publish.iter().any(|p| covers(p, id, name));
        free && !topic::is_reserved(name.text())
    }

    /// `filter`: a valid filter. Allowed when a pattern covers everything that the filter can match.
    pub fn may_subscribe(&self, role: Role, id: &[u8], filter: &Topic) -> bool {
        role == Role::Operator || self.subscribe.iter().any(|p| covers(p, id, filter))
    }
}

/// Whether every name that `filter` matches is matched by `pattern`. A name is a filter that matches itself.
fn covers(pattern: &[Level], id: &[u8], filter: &Topic) -> bool {
    // A wildcard in a pattern's first level doesn't reach the server's own topics.
    if matches!(pattern.first(), Some(Level::Any | Level::Rest)) && topic::is_reserved(filter.text()) {
        return false;
    }
    let mut levels = filter.levels();
    for part in pattern {
        let fits = match (part, levels.next()) {
            (Level::Rest, _) => return true,
            (_, None | Some(b"#")) => false,
            (Level::Any, Some(_)) => true,
            (Level::Id, Some(level)) => level == id,
            (Level::Literal(text), Some(level)) => **text == *level,
        };
        if !fits {
            return false;
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn split(text: &str) -> Topic<'_> {
        Topic::split(text, 64).unwrap()
    }

    fn default_acl() -> Acl {
        let own = ["devices/{id}/#".to_string()];
        Acl::new(&own, &own)
    }

    #[test]
    fn a_device_stays_under_its_own_name() {
        let acl = default_acl();
        let may = |t: &str| {
            (
                acl.may_publish(Role::Device, b"d1", &split(t)),
                acl.may_subscribe(Role::Device, b"d1", &split(t)),
            )
        };
        for t in ["devices/d1/a", "devices/d1/", "devices/d1", "devices/d1/../x"] {
            assert_eq!(may(t), (true, true), "{t}");
        }
        for t in [
            "devices/d1x/a",
            "devices",
            "/devices/d1/a",
            "devices//d1/a",
            "Devices/d1/a",
            "devices/d",
            "$SYS/x",
            "d1",
        ] {
            assert_eq!(may(t), (false, false), "{t}");
        }
        for f in ["#", "+/d1/#", "devices/+/#", "devices/#", "devices/+/t/#", "+/+", "$SYS/#"] {
            assert!(!acl.may_subscribe(Role::Device, b"d1", &split(f)), "{f}");
        }
        assert!(acl.may_subscribe(Role::Device, b"d1", &split("devices/d1/#")));
        assert!(acl.may_subscribe(Role::Device, b"d1", &split("devices/d1/+/x")));
    }

    #[test]
    fn an_operator_reads_everything_and_writes_no_reserved_topic() {
        let acl = default_acl();
        assert!(acl.may_subscribe(Role::Operator, b"op", &split("$SYS/#")));
        assert!(acl.may_publish(Role::Operator, b"op", &split("devices/d1/cmd")));
        assert!(!acl.may_publish(Role::Operator, b"op", &split("$SYS/broker/version")));
    }

    #[test]
    fn names_that_are_no_topic_level_are_no_device() {
        for bad in ["", "+", "#", "a/b", "$x", "a\0", "a+b"] {
            assert!(!is_device_name(bad), "{bad:?}");
        }
        assert!(is_device_name("dev-00001") && is_device_name("urn:x:é"));
    }

    #[test]
    fn patterns_are_checked() {
        assert!(["devices/{id}/#", "broadcast/+", "#"].iter().all(|p| is_pattern(p)));
        assert!(["", "a/{id}x", "a/{name}", "a/#/b"].iter().all(|p| !is_pattern(p)));
    }

    fn part() -> impl Strategy<Value = String> {
        prop_oneof!["a", "b", "d1", "", "\\$x", "\\+"]
    }

    proptest! {
        /// A covered filter never matches a name that its pattern doesn't.
        #[test]
        fn covering_is_sound(pattern in proptest::collection::vec(prop_oneof![part(), Just("{id}".to_string())], 1..4),
                             open in any::<[bool; 2]>(),
                             filter in proptest::collection::vec(part(), 1..4),
                             name in proptest::collection::vec(prop_oneof!["a", "b", "d1", "", "\\$x"], 1..5)) {
            let close = |mut levels: Vec<String>, open: bool| {
                if open {
                    levels.push("#".to_string());
                }
                levels.join("/")
            };
            let (pattern, filter, name) = (close(pattern, open[0]), close(filter, open[1]), name.join("/"));
            prop_assume!(is_pattern(&pattern) && topic::is_filter(&filter) && topic::is_name(&name));
            let acl = Acl::new(&[], core::slice::from_ref(&pattern));
            if acl.may_subscribe(Role::Device, b"d1", &split(&filter)) && topic::matches(&filter, &name) {
                let own = pattern.replace("{id}", "d1");
                prop_assert!(topic::matches(&own, &name), "{}", format!("{own} {filter} {name}"));
            }
        }
    }
}
