//! Discovery from QEMU's own device trees, and from ACPI tables built here after the specification.

use supervisor::acpi::{self, Memory};
use supervisor::dtb;
use supervisor::platform::{Error, PciHost, Platform, Window};

const GICV2: &[u8] = include_bytes!("tables/virt-gicv2.dtb");
const GICV3: &[u8] = include_bytes!("tables/virt-gicv3.dtb");
const SMMU: &[u8] = include_bytes!("tables/virt-smmu.dtb");

fn virt_pci() -> PciHost {
    let window = |bus, len| Window { bus, phys: bus, len };
    let windows = vec![window(0x1000_0000, 0x2eff_0000), window(0x80_0000_0000, 0x80_0000_0000)];
    PciHost { ecam: 0x40_1000_0000, first_bus: 0, last_bus: 255, windows }
}

#[test]
fn virt_with_gicv2() {
    let p = dtb::discover(GICV2).expect("QEMU's tree");
    let d = p.desc;
    assert_eq!((d.gic_version, d.gicd, d.gicc), (2, 0x800_0000, 0x801_0000));
    assert_eq!(d.v2m, 0x802_0000);
    assert_eq!((d.gicr, d.its), (0, 0));
    assert_eq!((d.timer_intid, d.psci_conduit), (27, 1));
    assert_eq!((p.uart, d.uart), (0x900_0000, 0x900_0000));
    assert_eq!(p.pci, Some(virt_pci()));
    assert_eq!(p.seed.len(), 32);
    assert!(!p.iommu);
}

#[test]
fn virt_with_gicv3() {
    let p = dtb::discover(GICV3).expect("QEMU's tree");
    let d = p.desc;
    assert_eq!((d.gic_version, d.gicd), (3, 0x800_0000));
    assert_eq!((d.gicr, d.gicr_len, d.its), (0x80a_0000, 0xf6_0000, 0x808_0000));
    assert_eq!((d.v2m, d.gicc), (0, 0));
    assert_eq!(p.pci, Some(virt_pci()));
}

#[test]
fn virt_with_smmu() {
    let p = dtb::discover(SMMU).expect("QEMU's tree");
    assert!(p.iommu);
    assert_eq!(p.desc.psci_conduit, 2, "with virtualization=on PSCI is called by SMC");
}

/// Prefixes, and bytes changed in some ways: an answer, never a panic. (`fuzz/` goes on from here.)
#[test]
fn damaged_trees() {
    let tree = GICV3;
    for len in (0..tree.len()).step_by(61) {
        let _ = dtb::discover(&tree[..len]);
    }
    let mut damaged = tree.to_vec();
    for at in (0..tree.len()).step_by(37) {
        for value in [0xff, tree[at].wrapping_add(1)] {
            damaged[at] = value;
            let _ = dtb::discover(&damaged);
        }
        damaged[at] = tree[at];
    }
}

/// Physical memory from [`BASE`].
struct Tables(Vec<u8>);
const BASE: u64 = 0x7fe_0000;

impl<'a> Memory<'a> for &'a Tables {
    fn bytes(&self, phys: u64, len: usize) -> Option<&'a [u8]> {
        let at = usize::try_from(phys.checked_sub(BASE)?).ok()?;
        self.0.get(at..at.checked_add(len)?)
    }
}

impl Tables {
    fn discover(&self) -> Result<Platform, Error> {
        acpi::discover(&self, BASE)
    }

    fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = BASE + self.0.len() as u64;
        self.0.extend_from_slice(bytes);
        at
    }
}

fn checksum(bytes: &mut [u8], at: usize) {
    bytes[at] = 0;
    bytes[at] = bytes.iter().fold(0u8, |sum, b| sum.wrapping_sub(*b));
}

fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut table = vec![0; 36];
    table[..4].copy_from_slice(signature);
    table[4..8].copy_from_slice(&(36 + body.len() as u32).to_le_bytes());
    table.extend_from_slice(body);
    checksum(&mut table, 9);
    table
}

/// Fields at their offsets in a body of `len` bytes; offsets count from the table's start.
fn body(len: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut body = vec![0; len];
    for (at, bytes) in fields {
        body[at - 36..at - 36 + bytes.len()].copy_from_slice(bytes);
    }
    body
}

/// Root pointer, XSDT and the given tables.
fn tables(contents: &[Vec<u8>]) -> Tables {
    let mut t = Tables(vec![0; 64]);
    let addresses: Vec<u8> = contents.iter().flat_map(|table| t.put(table).to_le_bytes()).collect();
    let xsdt = t.put(&table(b"XSDT", &addresses));
    let root = &mut t.0[..36];
    root[..8].copy_from_slice(b"RSD PTR ");
    root[15] = 2;
    root[20] = 36;
    root[24..32].copy_from_slice(&xsdt.to_le_bytes());
    checksum(&mut root[..20], 8);
    checksum(root, 32);
    t
}

fn mcfg() -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend(0xb000_0000u64.to_le_bytes());
    body.extend([0, 0, 0, 255, 0, 0, 0, 0]);
    table(b"MCFG", &body)
}

/// As QEMU's q35 has it: PM1a control at 0x604, timer at 0x608, reset by 0xf to port 0xcf9.
fn fadt(dsdt: u64) -> Vec<u8> {
    let fields: [(usize, &[u8]); 7] = [
        (64, &0x604u32.to_le_bytes()),
        (76, &0x608u32.to_le_bytes()),
        (112, &(1u32 << 10).to_le_bytes()),
        (116, &[1, 8, 0, 0]),
        (120, &0xcf9u64.to_le_bytes()),
        (128, &[0xf]),
        (140, &dsdt.to_le_bytes()),
    ];
    table(b"FACP", &body(276 - 36, &fields))
}

fn q35() -> Tables {
    // The DSDT comes first, so that its address is known.
    let dsdt = table(b"DSDT", b"\x08_S3_\x00\x08_S5_\x12\x06\x04\x0a\x05\x00\x00\x00");
    tables(&[dsdt, mcfg(), fadt(BASE + 64)])
}

#[test]
fn a_pc() {
    let p = q35().discover().expect("sound tables");
    let d = p.desc;
    assert_eq!(p.pci, Some(PciHost { ecam: 0xb000_0000, first_bus: 0, last_bus: 255, windows: vec![] }));
    assert_eq!((d.pm_timer_port, d.pm1a_control_port, d.s5_sleep_type), (0x608, 0x604, 5));
    assert_eq!((d.reset_space, d.reset_address, d.reset_value), (1, 0xcf9, 0xf));
    assert_eq!((d.gic_version, p.iommu), (0, false));
}

#[test]
fn an_iommu_is_noticed() {
    assert!(tables(&[table(b"DMAR", &[0; 12])]).discover().expect("sound").iommu);
}

#[test]
fn an_arm_server() {
    let mut madt = vec![0; 8];
    let mut entry = |kind: u8, len: u8, fields: &[(usize, &[u8])]| {
        let mut e = vec![0; len as usize];
        (e[0], e[1]) = (kind, len);
        for (at, bytes) in fields {
            e[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        madt.extend(e);
    };
    entry(0xc, 24, &[(8, &0x800_0000u64.to_le_bytes()), (20, &[3])]);
    entry(0xb, 80, &[(32, &0x801_0000u64.to_le_bytes())]);
    entry(0xe, 16, &[(4, &0x80a_0000u64.to_le_bytes()), (12, &0xf6_0000u32.to_le_bytes())]);
    entry(0xf, 20, &[(8, &0x808_0000u64.to_le_bytes())]);
    entry(
        0xd,
        24,
        &[
            (8, &0x802_0000u64.to_le_bytes()),
            (16, &[1]),
            (20, &64u16.to_le_bytes()),
            (22, &80u16.to_le_bytes()),
        ],
    );
    entry(0x77, 2, &[]);
    let gtdt = table(b"GTDT", &body(60, &[(64, &27u32.to_le_bytes())]));
    let spcr = table(b"SPCR", &body(44, &[(36, &[3]), (44, &0x900_0000u64.to_le_bytes())]));
    let mut facp = fadt(0);
    facp[129] = 3;
    checksum(&mut facp, 9);
    let p = tables(&[table(b"APIC", &madt), gtdt, spcr, facp, mcfg()]).discover().expect("sound tables");
    let d = p.desc;
    assert_eq!((d.gic_version, d.gicd, d.gicr, d.gicr_len), (3, 0x800_0000, 0x80a_0000, 0xf6_0000));
    assert_eq!((d.its, d.v2m, d.v2m_first_spi, d.v2m_spis), (0x808_0000, 0x802_0000, 80, 64));
    assert_eq!((d.timer_intid, d.psci_conduit, p.uart), (27, 1, 0x900_0000));
}

#[test]
fn unsound_tables() {
    let mut no_signature = q35();
    no_signature.0[0] = b'X';
    assert_eq!(no_signature.discover().err(), Some(Error::Signature));
    let mut flipped = q35();
    flipped.0[10] ^= 1;
    assert_eq!(flipped.discover().err(), Some(Error::Checksum));
    assert_eq!(acpi::discover(&&q35(), 0x10).err(), Some(Error::Unreadable));
    // An entry of length 0 would be looked at for ever.
    let endless = tables(&[table(b"APIC", &[0; 16])]);
    assert_eq!(endless.discover().err(), Some(Error::Malformed("MADT entry")));
    // A table with a wrong sum is as good as absent.
    let mut t = tables(&[mcfg()]);
    t.0[64 + 50] ^= 0xff;
    assert_eq!(t.discover().expect("the others count").pci, None);
}

/// Every byte changed in some ways, with the sums made right again, so that the parsers see it.
#[test]
fn damaged_tables() {
    let whole = q35();
    for at in 0..whole.0.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut t = Tables(whole.0.clone());
            t.0[at] = value;
            let _ = t.discover();
            let starts: Vec<usize> = [b"DSDT", b"MCFG", b"FACP", b"XSDT"]
                .iter()
                .filter_map(|s| t.0.windows(4).position(|w| w == *s))
                .collect();
            for start in starts {
                let len = u32::from_le_bytes(t.0[start + 4..start + 8].try_into().expect("four")) as usize;
                if let Some(table) = t.0.get_mut(start..start.saturating_add(len)).filter(|t| t.len() >= 36) {
                    checksum(table, 9);
                }
            }
            let _ = t.discover();
        }
    }
}
