use super::*;

const RW: Rights = Rights { write: true, execute: false, device: false };
const R: Rights = Rights { write: false, ..RW };

fn row(name: &str, start: u64, pages: u64, rights: Rights, object: Object) -> Mapping {
    Mapping {
        name: name.into(),
        kind: Kind::Ram,
        start,
        bytes: pages * PAGE_BYTES,
        rights,
        writer: None,
        boot_only: false,
        measured: None,
        object,
    }
}

/// Two tasks: a writes a ring that b reads; b has a device of which two of four pages are bound.
fn spaces() -> Vec<Vec<Mapping>> {
    let bar = Mapping {
        kind: Kind::Device,
        rights: Rights { device: true, ..RW },
        ..row("bar", 0x9000, 4, RW, Object::Region(2))
    };
    vec![
        vec![
            row("heap", 0x1000, 2, RW, Object::Segment(0, 0)),
            row("ring", 0x5000, 1, RW, Object::Region(1)),
        ],
        vec![row("ring", 0x5000, 1, R, Object::Region(1)), bar],
    ]
}

const LINES: &str = "map 0 1000 3000 rw- normal 100000\nmap 0 5000 6000 rw- normal 102000\n\
    map 1 5000 6000 r-- normal 102000\nmap 1 9000 b000 rw- device fe000000";

/// The differences of a machine that says `LINES` with a replacement.
fn differences(from: &str, to: &str) -> Vec<String> {
    let lines = LINES.replace(from, to);
    let stretches: Vec<_> = lines.lines().map(|l| Stretch::parse(l).unwrap()).collect();
    let mut spaces = spaces();
    let found = compare(&["a".into(), "b".into()], &mut spaces, &stretches);
    assert!(spaces.iter().flatten().all(|m| m.measured.is_some()));
    found.iter().map(|d| d.to_string()).collect()
}

#[test]
fn agreement() {
    assert_eq!(differences("", ""), [""; 0]);
}

#[test]
fn rows_that_touch_may_come_as_one_stretch() {
    let stretches = [Stretch::parse("map 0 1000 3000 rw- normal 100000").unwrap()];
    let mut spaces =
        [vec![row("x", 0x1000, 1, RW, Object::Region(1)), row("y", 0x2000, 1, RW, Object::Region(2))]];
    assert_eq!(compare(&["a".into()], &mut spaces, &stretches), Vec::new());
    let physical = |i: usize| spaces[0][i].measured.as_ref().unwrap().physical;
    assert_eq!((physical(0), physical(1)), (Some(0x10_0000), Some(0x10_1000)));
}

#[test]
fn every_kind_of_difference_is_told() {
    let one = |from: &str, to: &str, expected: &str| assert_eq!(differences(from, to), [expected]);
    one("6000 r--", "6000 rw-", "b 0x5000..0x6000: ring is r-- in the manifest, and mapped rw-");
    one("3000 rw-", "3000 rwx", "a 0x1000..0x3000: heap is rw- in the manifest, and mapped rwx");
    one("0 1000 3000", "0 1000 2000", "a 0x2000..0x3000: heap is rw- in the manifest, and not mapped");
    one("0 1000 3000", "0 1000 4000", "a 0x3000..0x4000: mapped rw-, and not in the manifest");
    one(
        "9000 b000 rw- device",
        "9000 b000 rw- normal",
        "b 0x9000..0xb000: bar is rw- device in the manifest, and mapped rw-",
    );
    one("9000 b000", "a000 e000", "b 0xd000..0xe000: mapped rw- device, and not in the manifest");
    // The ring of b is not a's, but a page of a's heap.
    one("r-- normal 102000", "r-- normal 101000", "b 0x5000..0x6000: ring shares memory with something else");
    one("map 1 9000", "map 2 9000", "task 2 0x9000..0xa000: not in the manifest");
}

#[test]
fn what_is_for_boot_only_is_gone() {
    let mut spaces = [vec![Mapping { boot_only: true, ..row("ecam", 0x1000, 2, RW, Object::Region(0)) }]];
    assert_eq!(compare(&["a".into()], &mut spaces, &[]), Vec::new());
    let found =
        compare(&["a".into()], &mut spaces, &[Stretch::parse("map 0 1000 2000 rw- normal 0").unwrap()]);
    assert_eq!(found[0].to_string(), "a 0x1000..0x2000: ecam is mapped rw- after the seal");
}

#[test]
fn other_lines_are_no_stretches() {
    for line in
        ["", "map", "map 0 1000 2000 rw-", "map x 0 0 rw- normal 0", "audit: 6 tasks", "map 0 1 2 r normal 3"]
    {
        assert_eq!(Stretch::parse(line), None, "{line}");
    }
}
