//! The machine that a kernel finds, looked at through its page tables and its responses.

use super::*;
use crate::cpus::Cpu;
use crate::kernel::LOWEST;
use crate::limine::tests::{request, revision};
use crate::paging::tests::lookup;
use crate::paging::{Aarch64, X86};
use crate::verify::tests::{File, payload};
use zerocopy::IntoBytes;

const PACKAGE_AT: u64 = 0x200_0000;

/// A kernel whose data segment holds these requests, at an offset that the test knows.
fn kernel_file<F: Format>(data: &[u8]) -> Vec<u8> {
    use elf::abi::{PF_W, PF_X};
    let segments = [(LOWEST, PF_X, &b"text"[..], 4), (LOWEST + PAGE, PF_W, data, 0x2000)];
    crate::kernel::tests::elf(F::ARCH as u32 as u16, &segments)
}

/// What the kernel would see.
struct Entered<F> {
    image: Vec<u8>,
    arena: Vec<u64>,
    places: (u64, u64),
    prepared: Prepared<F>,
    memory: MemoryMap,
    kernel_at: u64,
}

impl<F: Format> Entered<F> {
    /// The word at a pointer of the direct map.
    fn word(&self, pointer: u64) -> u64 {
        self.arena[((pointer - HHDM - self.places.1) / 8) as usize]
    }

    fn text(&self, pointer: u64) -> &str {
        let bytes = &self.arena.as_bytes()[(pointer - HHDM - self.places.1) as usize..];
        core::str::from_utf8(&bytes[..bytes.iter().position(|&b| b == 0).unwrap()]).unwrap()
    }

    /// Words of the response to the request at this offset of the data segment; the first is the revision, 0.
    fn response<const N: usize>(&self, offset: usize) -> [u64; N] {
        let at = PAGE as usize + offset + 40;
        let pointer = u64::from_le_bytes(self.image[at..at + 8].try_into().unwrap());
        core::array::from_fn(|i| self.word(pointer + 8 * i as u64))
    }

    fn lookup(&mut self, virt: u64) -> Option<(u64, u64)> {
        // Not `new`: that would zero it.
        let tables = &self.prepared.tables;
        let base = self.places.1;
        lookup(tables, &mut Arena::existing(base, self.arena.as_mut_bytes()), virt)
    }
}

fn enter<F: Format>(requests: &[Vec<u8>], cpus: u64) -> Result<Entered<F>, Error> {
    let kernel = kernel_file::<F>(&[revision(2), requests.concat()].concat());
    let file = File::new(&payload(F::ARCH, "signed", &kernel));
    let package = Package::parse(file.bytes()).unwrap();
    let mut memory = MemoryMap::new();
    memory.add(PAGE, 640 << 10, Kind::Usable).unwrap();
    memory.add(1 << 20, 127 << 20, Kind::Usable).unwrap();
    memory.add(4 << 30, 64 << 20, Kind::Usable).unwrap();
    memory.add(0xfff0_0000, 1 << 20, Kind::Reserved).unwrap();
    let mut machine = Machine {
        memory,
        package,
        package_at: PACKAGE_AT,
        firmware: Some(2),
        rsdp: Some(0xe_0000),
        dtb: None,
        efi_system_table: None,
        date: Some(1_796_053_723),
        entropy: &[9; 32],
        unsigned_line: b"evil diag",
        cpus: Cpus::new(4),
    };
    (5..4 + cpus).for_each(|id| machine.cpus.add(Cpu { id, uid: id as u32 }));
    let places = places::<F>(&mut machine, 4 << 30)?;
    let mut image = vec![0xff; places.kernel.bytes() as usize];
    let mut words = vec![u64::MAX; (places.arena_pages * PAGE / 8) as usize];
    let mut arena = Arena::new(places.arena, words.as_mut_bytes());
    let mut prepared = prepare::<F>(&machine, &places, &mut image, &mut arena, &[0x8000])?;
    if let Some(list) = &mut prepared.processors {
        // The third one doesn't come up.
        (1..cpus as usize).filter(|&i| i != 2).for_each(|i| list.started(&mut arena, i));
    }
    let kernel_at = package.kernel().as_ptr() as u64 - package.payload().as_ptr() as u64;
    Ok(Entered {
        image,
        arena: words,
        places: (places.image, places.arena),
        prepared,
        memory: machine.memory,
        kernel_at,
    })
}

/// Offset of request `n` in the data segment.
fn at(n: usize) -> usize {
    24 + 56 * n
}

fn maps<F: Format>() {
    let mut e = enter::<F>(&[], 1).unwrap();
    let (image, arena) = e.places;
    let to = |e: &mut Entered<F>, virt| e.lookup(virt).map(|(_, phys)| phys);
    assert_eq!(to(&mut e, LOWEST + 5), Some(image + 5));
    assert_eq!(to(&mut e, LOWEST + 0x2fff), Some(image + 0x2fff));
    assert_eq!(to(&mut e, LOWEST + 0x3000), None);
    assert_eq!(to(&mut e, LOWEST - 1), None);
    for phys in [0, 0xb_8000, PACKAGE_AT, arena, 0xffff_f000, 4 << 30, (4 << 30) + (64 << 20) - 1] {
        assert_eq!(to(&mut e, HHDM + phys), Some(phys), "{phys:#x}");
    }
    assert_eq!(to(&mut e, HHDM + (4 << 30) + (64 << 20)), None);
    assert_eq!((to(&mut e, 0x8123), to(&mut e, 0x9000)), (Some(0x8123), None));
    let rights = [LOWEST, LOWEST + PAGE, 0x8000].map(|virt| e.lookup(virt).unwrap().0);
    let good = match F::ARCH {
        Arch::X86_64 => rights.map(|r| (r >> 63 & 1, r >> 1 & 1)),
        Arch::Aarch64 => rights.map(|r| (r >> 53 & 1, 1 - (r >> 7 & 1))),
    };
    assert_eq!(good, [(0, 0), (1, 1), (0, 0)], "no execution, writing");
    assert_eq!(e.prepared.entry, LOWEST);
    assert!(e.lookup(e.prepared.stack_top - 8).is_some());
}

#[test]
fn maps_kernel_memory_and_trampoline() {
    maps::<X86>();
    maps::<Aarch64>();
}

#[test]
fn devices_are_no_memory_on_aarch64() {
    let mut e = enter::<Aarch64>(&[], 1).unwrap();
    let mut kind = |phys| e.lookup(HHDM + phys).unwrap().0 >> 2 & 7;
    assert_eq!(kind(PACKAGE_AT), Aarch64::NORMAL);
    for phys in [0, 0x0900_0000, 0xfff0_0000] {
        assert_eq!(kind(phys), Aarch64::DEVICE, "{phys:#x}");
    }
}

#[test]
fn answers_every_request() {
    use Feature::*;
    let asked =
        [DirectMap, CommandLine, Rsdp, DeviceTree, FirmwareType, Date, ExecutableAddress, Modules, StackSize];
    let e = enter::<X86>(&asked.map(|f| request(f, 0)), 1).unwrap();
    assert_eq!(e.response(at(0)), [0, HHDM]);
    assert_eq!(e.text(e.response::<2>(at(1))[1]), "signed diag");
    assert_eq!(e.response(at(2)), [0, HHDM + 0xe_0000]);
    assert_eq!(e.image[PAGE as usize + at(3) + 40..][..8], [0; 8], "no device tree, no answer");
    assert_eq!(e.response(at(4)), [0, 2]);
    assert_eq!(e.response(at(5)), [0, 1_796_053_723]);
    assert_eq!(e.response(at(6)), [0, e.places.0, LOWEST]);
    let [_, count, list] = e.response(at(7));
    assert_eq!(count, 2);
    let file = |i: u64| e.word(list + 8 * i);
    assert_eq!(e.word(file(0) + 8), HHDM + PACKAGE_AT);
    assert_eq!((e.text(e.word(file(1) + 24)), e.word(file(1) + 16)), ("/entropy", 32));
    assert_eq!(e.word(e.word(file(1) + 8)), 0x0909_0909_0909_0909);
    assert_eq!(e.response(at(8)), [0]);
    assert_eq!(e.image[PAGE as usize + 16..][..8], [0; 8], "base revision accepted");
    assert!(e.kernel_at.is_multiple_of(PAGE));
}

#[test]
fn memory_map_is_the_final_one() {
    let e = enter::<X86>(&[request(Feature::MemoryMap, 0)], 1).unwrap();
    let [_, count, list] = e.response(at(0));
    let told: Vec<_> =
        (0..count).map(|i| e.word(list + 8 * i)).map(|p| [0, 8, 16].map(|o| e.word(p + o))).collect();
    assert_eq!(told.len(), e.memory.regions().len());
    let kind = |phys: u64| told.iter().find(|r| r[0] <= phys && phys < r[0] + r[1]).map(|r| r[2]);
    let (image, arena) = e.places;
    assert_eq!(
        [kind(0), kind(PAGE), kind(PACKAGE_AT), kind(image), kind(arena)],
        [None, Some(0), Some(6), Some(6), Some(5)]
    );
    assert_eq!(kind(0xfff0_0000), Some(1));
}

fn processors<F: Format>(words: usize, id_at: u64) {
    let e = enter::<F>(&[request(Feature::Processors, 1)], 4).unwrap();
    let response: [u64; 5] = e.response(at(0));
    let [count, list] = [response[words], response[words + 1]];
    let ids: Vec<u64> = (0..count).map(|i| e.word(e.word(list + 8 * i) + id_at)).collect();
    let ids: Vec<u64> = ids.iter().map(|id| if F::SPLIT { *id } else { id >> 32 }).collect();
    assert_eq!(ids, [4, 5, 7]);
    assert!(e.prepared.processors.unwrap().x2apic);
}

#[test]
fn lists_the_processors_that_came_up() {
    processors::<X86>(2, 0);
    processors::<Aarch64>(3, 8);
}

#[test]
fn stack_size_is_bounded() {
    let stack =
        |wished| enter::<X86>(&[request(Feature::StackSize, wished)], 1).unwrap().prepared.stack_bytes;
    assert_eq!([stack(0), stack(100_000), stack(u64::MAX)], [MIN_STACK, 102_400, MAX_STACK]);
}

#[test]
fn entry_point_must_be_code() {
    let entry = |at| enter::<X86>(&[request(Feature::EntryPoint, at)], 1).map(|e| e.prepared.entry);
    assert_eq!(entry(LOWEST + 2).unwrap(), LOWEST + 2);
    assert_eq!(entry(LOWEST + PAGE).unwrap_err(), Error::Kernel(kernel::Error::Entry));
}

#[test]
fn says_when_memory_is_short() {
    let kernel = kernel_file::<X86>(&revision(2));
    let file = File::new(&payload(Arch::X86_64, "", &kernel));
    let mut memory = MemoryMap::new();
    memory.add(PAGE, 64 << 10, Kind::Usable).unwrap();
    let mut machine = Machine {
        memory,
        package: Package::parse(file.bytes()).unwrap(),
        package_at: PACKAGE_AT,
        firmware: None,
        rsdp: None,
        dtb: None,
        efi_system_table: None,
        date: None,
        entropy: &[],
        unsigned_line: &[],
        cpus: Cpus::new(0),
    };
    assert_eq!(places::<X86>(&mut machine, 4 << 30).unwrap_err(), Error::Memory(memory::Error::NoMemory));
}
