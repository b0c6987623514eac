//! Enumeration, placing and virtio structures over a model of configuration space.

use proptest::prelude::*;
use std::collections::HashMap;
use supervisor::function::{self, Layout, Place, structures};
use supervisor::pci::{self, Bar, ConfigSpace, Function, NoRoom, Placer, bars, capabilities, enumerate};
use supervisor::platform::{PciHost, Window};

/// Functions by number; a BAR's size decides which of its bits stick.
#[derive(Clone, Default)]
struct Model {
    functions: HashMap<Function, [u32; 64]>,
    sizes: HashMap<(Function, u8), u32>,
}

impl ConfigSpace for Model {
    fn read(&mut self, function: Function, offset: u8) -> u32 {
        self.functions.get(&function).map_or(u32::MAX, |f| f[offset as usize / 4])
    }
    fn write(&mut self, function: Function, offset: u8, value: u32) {
        let mask = self.sizes.get(&(function, offset)).copied();
        let Some(f) = self.functions.get_mut(&function) else { return };
        let word = &mut f[offset as usize / 4];
        *word = match offset {
            0x04 => *word & 0xffff_0000 | value & 0xffff,
            // The lower bits of a BAR's first word say what it is; the last BAR here is an upper half.
            0x10..=0x20 => mask.map_or(0, |m| value & m | *word & 0xf),
            0x24 => mask.map_or(0, |m| value & m),
            _ => value,
        };
    }
}

fn at(bus: u8, device: u8, function: u8) -> Function {
    Function { bus, device, function }
}

/// As QEMU's virtio-net-pci: MSI-X table in BAR 1, structures in BAR 4.
fn virtio_net(model: &mut Model, f: Function) {
    let mut words = [0u32; 64];
    words[0] = 0x1000_1af4;
    words[1] = 1 << 20;
    words[0x2c / 4] = 1 << 16;
    words[0x34 / 4] = 0x98;
    words[0x20 / 4] = 0xc;
    // MSI-X with 4 entries, then common, isr, device, notify.
    let mut capability = |offset: usize, words_: &[u32]| {
        words[offset / 4..offset / 4 + words_.len()].copy_from_slice(words_);
    };
    capability(0x98, &[0x0003_8411, 1, 0x801]);
    capability(0x84, &[0x0114_7009, 4, 0, 0x1000]);
    capability(0x70, &[0x0314_6009, 4, 0x1000, 0x1000]);
    capability(0x60, &[0x0410_4c09, 4, 0x2000, 0x1000]);
    capability(0x4c, &[0x0214_0009, 4, 0x3000, 0x1000, 4]);
    model.functions.insert(f, words);
    model.sizes.insert((f, 0x14), 0xffff_f000);
    model.sizes.insert((f, 0x20), 0xffff_c000);
    model.sizes.insert((f, 0x24), 0xffff_ffff);
}

fn host(windows: Vec<Window>) -> PciHost {
    PciHost { ecam: 0x4000_0000, first_bus: 0, last_bus: 3, windows }
}

fn window(bus: u64, phys: u64, len: u64) -> Window {
    Window { bus, phys, len }
}

#[test]
fn functions_behind_bridges_are_found() {
    let mut m = Model::default();
    virtio_net(&mut m, at(0, 2, 0));
    let mut bridge = [0u32; 64];
    (bridge[0], bridge[3], bridge[6]) = (0x0001_8086, 0x0001_0000, 0x0001_0100);
    m.functions.insert(at(0, 3, 0), bridge);
    virtio_net(&mut m, at(1, 0, 0));
    // Function 1 is looked at only where function 0 says that there are more.
    virtio_net(&mut m, at(1, 0, 1));
    // A bridge back to its own bus, and one beyond the host's buses.
    (bridge[0], bridge[6]) = (0x0002_8086, 0x0000_0000);
    m.functions.insert(at(1, 4, 0), bridge);
    bridge[6] = 0x0009_0901;
    m.functions.insert(at(1, 5, 0), bridge);
    let found: Vec<_> = enumerate(&mut m, &host(vec![])).iter().map(|f| f.function).collect();
    assert_eq!(found, [at(0, 2, 0), at(0, 3, 0), at(1, 0, 0), at(1, 4, 0), at(1, 5, 0)]);
}

#[test]
fn bars_are_sized_and_left_as_they_were() {
    let mut m = Model::default();
    let f = at(0, 1, 0);
    virtio_net(&mut m, f);
    m.write(f, 0x14, 0xfebc_1000);
    let before = m.functions[&f];
    let found = bars(&mut m, f);
    assert_eq!(m.functions[&f], before);
    assert_eq!(
        found,
        [
            Bar { index: 1, wide: false, address: 0xfebc_1000, len: 0x1000 },
            Bar { index: 4, wide: true, address: 0, len: 0x4000 }
        ]
    );
}

#[test]
fn unplaced_bars_get_places_apart() {
    let mut m = Model::default();
    let (a, b) = (at(0, 1, 0), at(0, 2, 0));
    virtio_net(&mut m, a);
    virtio_net(&mut m, b);
    let host = host(vec![window(0x1000_0000, 0x5000_0000, 0x10_0000)]);
    let found = enumerate(&mut m, &host);
    let mut placer = Placer::new(&mut m, &host, &found);
    let mut all = placer.place(&mut m, a).expect("room");
    all.extend(placer.place(&mut m, b).expect("room"));
    for (i, bar) in all.iter().enumerate() {
        assert!(bar.address % bar.len == 0 && (0x5000_0000..0x5010_0000).contains(&bar.address), "{bar:x?}");
        assert!(
            all[..i].iter().all(|o| o.address + o.len <= bar.address || bar.address + bar.len <= o.address)
        );
    }
    assert_eq!(
        m.functions[&a][5] as u64 & !0xf,
        all[0].address - 0x4000_0000,
        "the bus's own address is written"
    );
}

#[test]
fn what_the_firmware_has_placed_stays_and_is_in_nobodys_way() {
    let mut m = Model::default();
    let (a, b) = (at(0, 1, 0), at(0, 2, 0));
    virtio_net(&mut m, a);
    virtio_net(&mut m, b);
    m.write(a, 0x14, 0x1000_8000);
    m.write(a, 0x20, 0x1001_0000);
    pci::enable(&mut m, a);
    let host = host(vec![window(0x1000_0000, 0x1000_0000, 0x10_0000)]);
    let found = enumerate(&mut m, &host);
    let mut placer = Placer::new(&mut m, &host, &found);
    let addresses = |bars: Vec<Bar>| bars.iter().map(|b| b.address).collect::<Vec<_>>();
    assert_eq!(addresses(placer.place(&mut m, a).expect("placed")), [0x1000_8000, 0x1001_0000]);
    assert!(addresses(placer.place(&mut m, b).expect("room")).iter().all(|&address| address >= 0x1001_4000));
}

#[test]
fn without_windows_the_firmwares_places_count_even_when_switched_off() {
    let mut m = Model::default();
    let f = at(0, 1, 0);
    virtio_net(&mut m, f);
    m.write(f, 0x14, 0x1000_8000);
    m.write(f, 0x20, 0x1001_0000);
    let host = host(vec![]);
    let placed = Placer::new(&mut m, &host, &[]).place(&mut m, f).expect("the firmware has placed all");
    assert_eq!(placed.iter().map(|b| b.address).collect::<Vec<_>>(), [0x1000_8000, 0x1001_0000]);
}

#[test]
fn no_window_no_place() {
    let mut m = Model::default();
    virtio_net(&mut m, at(0, 1, 0));
    for windows in [vec![], vec![window(0x1000_0000, 0, 0x1000)], vec![window(u64::MAX - 0xfff, 0, u64::MAX)]]
    {
        let host = host(windows);
        let mut placer = Placer::new(&mut m, &host, &[]);
        assert_eq!(placer.place(&mut m, at(0, 1, 0)), Err(NoRoom));
    }
}

#[test]
fn structures_of_virtio_net() {
    let mut m = Model::default();
    let f = at(0, 1, 0);
    virtio_net(&mut m, f);
    let found = enumerate(&mut m, &host(vec![]));
    assert_eq!(function::device_type(&found[0]), Some(function::NET));
    let bars = [
        Bar { index: 1, wide: false, address: 0xf000_0000, len: 0x1000 },
        Bar { index: 4, wide: true, address: 0xf100_0000, len: 0x4000 },
    ];
    let s = structures(&mut m, f, &bars).expect("modern");
    assert_eq!(s.common, Place { phys: 0xf100_0000, len: 0x1000 });
    assert_eq!(s.notify, Place { phys: 0xf100_3000, len: 0x1000 });
    assert_eq!(s.notify_multiplier, 4);
    assert_eq!(s.config, Some(Place { phys: 0xf100_2000, len: 0x1000 }));
    let msix = s.msix.expect("has MSI-X");
    assert_eq!((msix.capability, msix.table), (0x98, Place { phys: 0xf000_0000, len: 64 }));
    function::enable_msix(&mut m, f, &msix);
    assert_eq!(m.read(f, 0x98) >> 31, 1);
}

#[test]
fn structures_outside_of_their_bar_are_refused() {
    let mut m = Model::default();
    let f = at(0, 1, 0);
    virtio_net(&mut m, f);
    let small = [Bar { index: 4, wide: true, address: 0xf100_0000, len: 0x2000 }];
    assert_eq!(structures(&mut m, f, &small), Err(function::Error::Structure));
    let high = [Bar { index: 4, wide: true, address: u64::MAX - 0xfff, len: 0x4000 }];
    assert_eq!(structures(&mut m, f, &high), Err(function::Error::Structure));
    assert_eq!(structures(&mut m, f, &[]), Err(function::Error::Structure));
}

#[test]
fn a_list_in_a_circle_ends() {
    let mut m = Model::default();
    let f = at(0, 1, 0);
    virtio_net(&mut m, f);
    m.functions.get_mut(&f).expect("there")[0x4c / 4] = 0x0214_9809;
    assert_eq!(capabilities(&mut m, f).len(), 48);
}

#[test]
fn layout_packs_whole_pages() {
    let mut layout = Layout::default();
    let place = |phys, len| Place { phys, len };
    let window = layout.add(place(0xf000_0040, 0x40), 4).expect("room");
    assert_eq!((window.offset, window.len), (0x40, 0x40));
    let window = layout.add(place(0xf000_0080, 0x40), 4).expect("the same page");
    assert_eq!((window.offset, window.len), (0x80, 0x40));
    let window = layout.add(place(0xf000_1ff0, 0x20), 4).expect("room");
    assert_eq!((window.offset, window.len), (0x1ff0, 0x20));
    let window = layout.add(place(0xf100_0000, 0x10_0000), 4).expect("what is left");
    assert_eq!((window.offset, window.len), (0x3000, 0x1000));
    assert!(layout.add(place(0xf200_0000, 4), 4).is_none());
    assert!(layout.touches(place(0xf000_0800, 16)) && layout.touches(place(0xf000_2ff8, 16)));
    assert!(!layout.touches(place(0xf000_3000, 16)) && !layout.touches(place(0xefff_fff0, 16)));
}

proptest! {
    /// Whatever configuration space says: no panic, and structures lie in their BARs.
    #[test]
    fn hostile_space(
        words in proptest::collection::vec((0u8..64, prop_oneof![any::<u32>(), Just(u32::MAX), Just(0)]), 0..40),
        masks in proptest::collection::vec(any::<u32>(), 6),
    ) {
        let mut m = Model::default();
        let f = at(0, 1, 0);
        virtio_net(&mut m, f);
        let space = m.functions.get_mut(&f).expect("there");
        words.iter().for_each(|&(at, value)| space[at as usize] = value);
        for (i, mask) in masks.iter().enumerate() {
            m.sizes.insert((f, 0x10 + 4 * i as u8), *mask);
        }
        let host = host(vec![window(0x1000_0000, 0x1000_0000, 0x1000_0000)]);
        let found = enumerate(&mut m, &host);
        let mut placer = Placer::new(&mut m, &host, &found);
        if let Ok(bars) = placer.place(&mut m, f) && let Ok(s) = structures(&mut m, f, &bars) {
            let inside = |p: Place| {
                bars.iter().any(|b| p.phys >= b.address && p.phys - b.address + p.len as u64 <= b.len)
            };
            prop_assert!(inside(s.common) && inside(s.notify));
        }
    }
}
