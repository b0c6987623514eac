//! The topic tree: subscriptions and retained messages by topic level.
//!
//! A node is a topic or filter prefix. Its children are found through one hash table over (node, level), so a match costs
//! one look-up a level, however many children there are; the `+` child is named in the node, and subscriptions that
//! end in `#` stand at the node in front of it. Nodes that nothing needs go at once.

use crate::codec::Qos;
use crate::names::{Name, Names};
use crate::slab::{NONE, Slab};
use crate::table;
use crate::topic::{self, Topic};
use alloc::vec::Vec;
use hashbrown::HashTable;

const ROOT: u32 = 0;

#[derive(Clone)]
struct Node {
    level: Name,
    parent: u32,
    /// First child, and the list of siblings.
    child: u32,
    next: u32,
    prev: u32,
    /// The child `+`.
    plus: u32,
    /// First subscription that ends here, and first that continues with `#`.
    exact: u32,
    below: u32,
    /// Retained message of this topic, and their number here and below.
    retained: u32,
    stored: u32,
}

impl Default for Node {
    fn default() -> Self {
        Node {
            level: Name::NONE,
            parent: NONE,
            child: NONE,
            next: NONE,
            prev: NONE,
            plus: NONE,
            exact: NONE,
            below: NONE,
            retained: NONE,
            stored: 0,
        }
    }
}

/// One filter of one session.
#[derive(Clone)]
struct Subscription {
    node: u32,
    /// List at the node.
    next: u32,
    prev: u32,
    /// List of the session.
    sibling: u32,
    session: u32,
    qos: Qos,
    below: bool,
}

impl Default for Subscription {
    fn default() -> Self {
        Subscription {
            node: NONE,
            session: NONE,
            next: NONE,
            prev: NONE,
            sibling: NONE,
            qos: Qos::AtMostOnce,
            below: false,
        }
    }
}

pub struct Tree {
    nodes: Slab<Node>,
    edges: HashTable<u32>,
    subscriptions: Slab<Subscription>,
    /// Nodes to look at, in this level and the next; kept between calls for their memory.
    frontier: (Vec<u32>, Vec<u32>),
}

/// Bytes of a node, with its place in the table.
const NODE_COST: usize = 56;

/// The most that a path of `levels` levels and `bytes` bytes can add to the tree's memory.
pub fn path_cost(levels: usize, bytes: usize) -> usize {
    levels * (NODE_COST + 64) + bytes
}

/// A receiver of a message: session, and the QoS that it subscribed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Receiver {
    pub session: u32,
    pub qos: Qos,
}

fn edge_hash(names: &Names, parent: u32, level: &[u8]) -> u64 {
    names.hash(level) ^ (parent as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Tree {
    pub fn new() -> Self {
        let mut nodes = Slab::new();
        nodes.insert(Node::default());
        Tree { nodes, edges: HashTable::new(), subscriptions: Slab::new(), frontier: Default::default() }
    }

    /// Subscriptions of all sessions.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// Memory of nodes and their levels, roughly.
    pub fn bytes_used(&self, names: &Names) -> usize {
        self.nodes.len() * NODE_COST + names.bytes_used()
    }

    #[cfg(test)]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn find_child(&self, names: &Names, parent: u32, level: &[u8]) -> u32 {
        let nodes = &self.nodes;
        let same = |&n: &u32| {
            let node = &nodes[n];
            node.parent == parent && names.bytes(node.level) == level
        };
        self.edges.find(edge_hash(names, parent, level), same).copied().unwrap_or(NONE)
    }

    fn make_child(&mut self, names: &mut Names, parent: u32, level: &[u8]) -> u32 {
        let found = self.find_child(names, parent, level);
        if found != NONE {
            return found;
        }
        let next = self.nodes[parent].child;
        let node = self.nodes.insert(Node { level: names.intern(level), parent, next, ..Node::default() });
        self.nodes[parent].child = node;
        if next != NONE {
            self.nodes[next].prev = node;
        }
        if level == b"+" {
            self.nodes[parent].plus = node;
        }
        let (nodes, names) = (&self.nodes, &*names);
        let hash = |&n: &u32| edge_hash(names, nodes[n].parent, names.bytes(nodes[n].level));
        self.edges.insert_unique(hash(&node), node, hash);
        node
    }

    fn make_path(&mut self, names: &mut Names, path: &str) -> u32 {
        topic::levels(path).fold(ROOT, |node, level| self.make_child(names, node, level))
    }

    fn find_path(&self, names: &Names, path: &str) -> u32 {
        let mut node = ROOT;
        for level in topic::levels(path) {
            node = self.find_child(names, node, level);
            if node == NONE {
                break;
            }
        }
        node
    }

    /// Removes `node` and what was above it, as far as nothing needs it.
    fn prune(&mut self, names: &mut Names, mut node: u32) {
        while node != ROOT {
            let n = &self.nodes[node];
            if [n.child, n.exact, n.below, n.retained].iter().any(|&x| x != NONE) {
                return;
            }
            let (parent, next, prev, level) = (n.parent, n.next, n.prev, n.level);
            let (nodes, all) = (&self.nodes, &*names);
            let hash = |&n: &u32| edge_hash(all, nodes[n].parent, all.bytes(nodes[n].level));
            table::remove(&mut self.edges, node, hash);
            match prev {
                NONE => self.nodes[parent].child = next,
                prev => self.nodes[prev].next = next,
            }
            if next != NONE {
                self.nodes[next].prev = prev;
            }
            if self.nodes[parent].plus == node {
                self.nodes[parent].plus = NONE;
            }
            names.release(level);
            self.nodes.remove(node);
            node = parent;
        }
    }
}

/// A valid filter as (path of its node, whether `#` follows). `#` alone is at the root: no path.
fn split_filter(filter: &str) -> (Option<&str>, bool) {
    match filter.strip_suffix('#') {
        None => (Some(filter), false),
        Some(rest) => (rest.strip_suffix('/'), true),
    }
}

impl Tree {
    /// Finds the session's subscription at `node`; `own` is the first of its list. O(subscriptions of the session).
    fn find_own(&self, own: u32, node: u32, below: bool) -> u32 {
        let mut at = own;
        while at != NONE && (self.subscriptions[at].node != node || self.subscriptions[at].below != below) {
            at = self.subscriptions[at].sibling;
        }
        at
    }

    /// Adds a valid filter, or changes its QoS. `own`: head of the session's list. True: it is a new one.
    pub fn subscribe(
        &mut self,
        names: &mut Names,
        filter: &str,
        session: u32,
        own: &mut u32,
        qos: Qos,
    ) -> bool {
        let (path, below) = split_filter(filter);
        let node = path.map_or(ROOT, |path| self.make_path(names, path));
        let found = self.find_own(*own, node, below);
        if found != NONE {
            self.subscriptions[found].qos = qos;
            return false;
        }
        let head = if below { self.nodes[node].below } else { self.nodes[node].exact };
        let new = Subscription { node, session, next: head, prev: NONE, sibling: *own, qos, below };
        let new = self.subscriptions.insert(new);
        if head != NONE {
            self.subscriptions[head].prev = new;
        }
        *self.head(node, below) = new;
        *own = new;
        true
    }

    /// Whether the session has this very filter.
    pub fn has(&self, names: &Names, filter: &str, own: u32) -> bool {
        let (path, below) = split_filter(filter);
        let node = path.map_or(ROOT, |path| self.find_path(names, path));
        node != NONE && self.find_own(own, node, below) != NONE
    }

    /// True: there was one.
    pub fn unsubscribe(&mut self, names: &mut Names, filter: &str, own: &mut u32) -> bool {
        let (path, below) = split_filter(filter);
        let node = path.map_or(ROOT, |path| self.find_path(names, path));
        let gone = if node == NONE { NONE } else { self.find_own(*own, node, below) };
        if gone == NONE {
            return false;
        }
        let after = self.subscriptions[gone].sibling;
        let mut at = *own;
        if at == gone {
            *own = after;
        } else {
            while self.subscriptions[at].sibling != gone {
                at = self.subscriptions[at].sibling;
            }
            self.subscriptions[at].sibling = after;
        }
        self.unlink(names, gone);
        true
    }

    /// Removes all subscriptions of the list that starts with `own`.
    pub fn unsubscribe_all(&mut self, names: &mut Names, mut own: u32) {
        while own != NONE {
            let after = self.subscriptions[own].sibling;
            self.unlink(names, own);
            own = after;
        }
    }

    fn head(&mut self, node: u32, below: bool) -> &mut u32 {
        let node = &mut self.nodes[node];
        if below { &mut node.below } else { &mut node.exact }
    }

    fn unlink(&mut self, names: &mut Names, gone: u32) {
        let Subscription { node, next, prev, below, .. } = self.subscriptions.remove(gone);
        match prev {
            NONE => *self.head(node, below) = next,
            prev => self.subscriptions[prev].next = next,
        }
        if next != NONE {
            self.subscriptions[next].prev = prev;
        }
        self.prune(names, node);
    }

    /// Who receives a message to `name`, each session once, with the highest QoS of its matching subscriptions.
    pub fn receivers(&mut self, names: &Names, name: &Topic, out: &mut Vec<Receiver>) {
        out.clear();
        let (mut frontier, mut next) = core::mem::take(&mut self.frontier);
        frontier.push(ROOT);
        let mut lists = 0;
        for (depth, level) in name.levels().enumerate() {
            let wildcards = depth > 0 || !topic::is_reserved(name.text());
            for node in frontier.drain(..) {
                let Node { plus, below, .. } = self.nodes[node];
                if wildcards {
                    lists += self.collect(below, out);
                    next.extend(Some(plus).filter(|&n| n != NONE));
                }
                next.extend(Some(self.find_child(names, node, level)).filter(|&n| n != NONE));
            }
            core::mem::swap(&mut frontier, &mut next);
        }
        for node in frontier.drain(..) {
            let Node { exact, below, .. } = self.nodes[node];
            lists += self.collect(exact, out);
            lists += self.collect(below, out);
        }
        self.frontier = (frontier, next);
        if lists > 1 {
            // Ascending by session, then QoS: the last of each session is its highest.
            out.sort_unstable();
            out.reverse();
            out.dedup_by_key(|r| r.session);
        }
    }

    /// 1 when the list isn't empty.
    fn collect(&self, mut at: u32, out: &mut Vec<Receiver>) -> usize {
        let some = at != NONE;
        while at != NONE {
            let s = &self.subscriptions[at];
            out.push(Receiver { session: s.session, qos: s.qos });
            at = s.next;
        }
        some as usize
    }
}

/// Retained messages: the tree holds their numbers.
impl Tree {
    /// The number stored at a topic, or `NONE`.
    pub fn retained(&self, names: &Names, name: &str) -> u32 {
        match self.find_path(names, name) {
            NONE => NONE,
            node => self.nodes[node].retained,
        }
    }

    /// Stores `number` (not `NONE`) where nothing is stored.
    pub fn retain(&mut self, names: &mut Names, name: &str, number: u32) {
        let node = self.make_path(names, name);
        self.nodes[node].retained = number;
        self.count(node, 1);
    }

    pub fn forget(&mut self, names: &mut Names, name: &str) {
        let node = self.find_path(names, name);
        if node == NONE || self.nodes[node].retained == NONE {
            return;
        }
        self.nodes[node].retained = NONE;
        self.count(node, -1);
        self.prune(names, node);
    }

    fn count(&mut self, mut node: u32, change: i32) {
        while node != NONE {
            let n = &mut self.nodes[node];
            n.stored = n.stored.wrapping_add_signed(change);
            node = n.parent;
        }
    }

    /// Numbers of the retained messages that a valid filter matches.
    pub fn matching(&self, names: &Names, filter: &str, out: &mut Vec<u32>) {
        let levels: Vec<&[u8]> = topic::levels(filter).collect();
        self.walk(names, ROOT, &levels, out);
    }

    fn walk(&self, names: &Names, node: u32, levels: &[&[u8]], out: &mut Vec<u32>) {
        if self.nodes[node].stored == 0 {
            return;
        }
        match levels {
            [] => out.extend(Some(self.nodes[node].retained).filter(|&r| r != NONE)),
            [b"#", ..] => self.all_below(names, node, out),
            [b"+", rest @ ..] => self.each_child(names, node, |child| self.walk(names, child, rest, out)),
            [level, rest @ ..] => {
                let child = self.find_child(names, node, level);
                if child != NONE {
                    self.walk(names, child, rest, out);
                }
            }
        }
    }

    fn all_below(&self, names: &Names, node: u32, out: &mut Vec<u32>) {
        if self.nodes[node].stored == 0 {
            return;
        }
        out.extend(Some(self.nodes[node].retained).filter(|&r| r != NONE));
        self.each_child(names, node, |child| self.all_below(names, child, out));
    }

    /// The children that a wildcard matches: in the first level, none of the server's own.
    fn each_child(&self, names: &Names, node: u32, mut visit: impl FnMut(u32)) {
        let mut child = self.nodes[node].child;
        while child != NONE {
            let c = &self.nodes[child];
            if c.stored > 0 && (node != ROOT || !names.bytes(c.level).starts_with(b"$")) {
                visit(child);
            }
            child = c.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::{BTreeMap, BTreeSet};
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    const SESSIONS: usize = 4;

    #[derive(Clone, Debug)]
    enum Step {
        Subscribe(usize, String, u8),
        Unsubscribe(usize, String),
        End(usize),
        Retain(String),
        Forget(String),
        Publish(String),
        Match(String),
    }

    fn name() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop_oneof!["a", "b", "", "\\$s"], 1..5)
            .prop_map(|l| l.join("/"))
            .prop_filter("name", |n| topic::is_name(n))
    }

    fn filter() -> impl Strategy<Value = String> {
        (proptest::collection::vec(prop_oneof!["a", "b", "", "\\$s", "\\+", "\\+"], 0..4), any::<bool>())
            .prop_map(|(mut l, hash)| {
                if hash || l.is_empty() {
                    l.push("#".to_string());
                }
                l.join("/")
            })
            .prop_filter("filter", |f| topic::is_filter(f))
    }

    fn step() -> impl Strategy<Value = Step> {
        let session = 0..SESSIONS;
        prop_oneof![
            4 => (session.clone(), filter(), 0u8..3).prop_map(|(s, f, q)| Step::Subscribe(s, f, q)),
            2 => (session.clone(), filter()).prop_map(|(s, f)| Step::Unsubscribe(s, f)),
            1 => session.prop_map(Step::End),
            3 => name().prop_map(Step::Retain),
            1 => name().prop_map(Step::Forget),
            6 => name().prop_map(Step::Publish),
            3 => filter().prop_map(Step::Match),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn the_tree_does_what_the_naive_model_does(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut tree, mut names) = (Tree::new(), Names::new(7));
            let mut own = [NONE; SESSIONS];
            let mut model: BTreeMap<(usize, String), u8> = BTreeMap::new();
            let mut retained: BTreeMap<String, u32> = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Subscribe(s, f, q) => {
                        let new = tree.subscribe(&mut names, &f, s as u32, &mut own[s], Qos::from_number(q).unwrap());
                        prop_assert!(tree.has(&names, &f, own[s]));
                        prop_assert_eq!(new, model.insert((s, f), q).is_none());
                    }
                    Step::Unsubscribe(s, f) => {
                        let gone = tree.unsubscribe(&mut names, &f, &mut own[s]);
                        prop_assert_eq!(gone, model.remove(&(s, f)).is_some());
                    }
                    Step::End(s) => {
                        tree.unsubscribe_all(&mut names, core::mem::replace(&mut own[s], NONE));
                        model.retain(|(of, _), _| *of != s);
                    }
                    Step::Retain(n) => {
                        if retained.insert(n.clone(), number as u32).is_some() {
                            tree.forget(&mut names, &n);
                        }
                        tree.retain(&mut names, &n, number as u32);
                    }
                    Step::Forget(n) => {
                        tree.forget(&mut names, &n);
                        retained.remove(&n);
                    }
                    Step::Publish(n) => {
                        let mut got = Vec::new();
                        tree.receivers(&names, &Topic::split(&n, 64).unwrap(), &mut got);
                        got.sort();
                        let mut want: BTreeMap<u32, u8> = BTreeMap::new();
                        for ((s, f), q) in &model {
                            if topic::matches(f, &n) {
                                let best = want.entry(*s as u32).or_default();
                                *best = (*best).max(*q);
                            }
                        }
                        let got: Vec<(u32, u8)> = got.into_iter().map(|r| (r.session, r.qos as u8)).collect();
                        prop_assert_eq!(got, want.into_iter().collect::<Vec<_>>());
                    }
                    Step::Match(f) => {
                        let mut got = Vec::new();
                        tree.matching(&names, &f, &mut got);
                        let want: BTreeSet<u32> = retained.iter().filter(|(n, _)| topic::matches(&f, n)).map(|(_, &v)| v).collect();
                        prop_assert_eq!(got.len(), want.len());
                        prop_assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), want);
                    }
                }
                prop_assert_eq!(tree.subscriptions(), model.len());
            }
            for (s, own) in own.into_iter().enumerate() {
                tree.unsubscribe_all(&mut names, own);
                model.retain(|(of, _), _| *of != s);
            }
            for n in retained.keys() {
                tree.forget(&mut names, n);
            }
            // Nothing stays behind: no node but the root, no name.
            prop_assert_eq!((tree.nodes(), names.len()), (1, 0));
        }
    }
}
