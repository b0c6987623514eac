//! Boots: cores, firmware, interrupt controllers, the audit line, and packages that must be refused.

use anyhow::{Result, ensure};
use smoke::{Client, Credentials, Machine, Options, on_both, tools};
use std::path::PathBuf;
use std::time::Duration;

on_both!(
    audit_is_clean_on_one_core,
    two_cores_serve,
    four_cores_serve,
    uefi_serves,
    changed_packages_are_refused,
    a_production_image_hides_addresses,
);

/// The audit line's zeros, and a client that gets through.
fn serves(options: &Options, cores: u32) -> Result<()> {
    let machine = Machine::ready(options)?;
    let line = machine.wait_for("W^X violations", Duration::from_secs(1))?;
    for zero in [
        "W^X violations: 0",
        "writable page-table pages: 0",
        "pages shared beyond the manifest: 0",
        "missing guards: 0",
    ] {
        ensure!(line.contains(zero), "audit line without {zero:?}: {line}");
    }
    ensure!(line.contains(&format!("{cores} core")), "not {cores} cores: {line}");
    let mut device = Client::connect(machine.port, &Credentials::device(1))?;
    device.subscribe("devices/dev-00001/#", 1)?;
    device.send(&smoke::client::publish_packet("devices/dev-00001/x", b"hello", None))?;
    ensure!(device.message()? == ("devices/dev-00001/x".into(), b"hello".to_vec()));
    Ok(())
}

fn audit_is_clean_on_one_core(arch: &'static str) -> Result<()> {
    serves(&Options::new(arch), 1)
}

fn two_cores_serve(arch: &'static str) -> Result<()> {
    serves(&Options { smp: 2, ..Options::new(arch) }, 2)
}

fn four_cores_serve(arch: &'static str) -> Result<()> {
    serves(&Options { smp: 4, ..Options::new(arch) }, 4)
}

fn uefi_serves(arch: &'static str) -> Result<()> {
    serves(&Options { boot: "uefi", ..Options::new(arch) }, 1)
}

#[test]
fn gic_version_3_with_its_serves() -> Result<()> {
    let mut options = Options::new("aarch64");
    options.extra = vec!["--gic".into(), "3".into()];
    serves(&options, 1)
}

/// The image as shipped: no serial commands, no addresses in fault lines.
fn a_production_image_hides_addresses(arch: &'static str) -> Result<()> {
    let mut options = Options::new(arch);
    options.image = arch.into();
    let mut machine = Machine::ready(&options)?;
    machine.type_line("kill nic")?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(
        machine.lines().iter().all(|l| !l.contains("nic: restarted")),
        "a production image obeyed the serial line"
    );
    Client::connect(machine.port, &Credentials::device(1))?;
    Ok(())
}

/// One flipped bit in each part of the file, a cut, another key, no signature: a readable line, and no kernel.
fn changed_packages_are_refused(arch: &'static str) -> Result<()> {
    let image = tools::root().join(format!("out/{arch}-dev/urmqtt.pkg"));
    let good = std::fs::read(image)?;
    let len = good.len();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let foreign = foreign_package(arch)?;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("flipped-header", flipped(100)),
        ("flipped-kernel", flipped(len / 4)),
        ("flipped-middle", flipped(len / 2)),
        ("flipped-payload-end", flipped(len - 4096 - 17)),
        ("truncated", good[..len / 2].to_vec()),
        ("unsigned", good[..len - 4096].to_vec()),
        ("foreign", foreign),
    ];
    let folder = tools::scratch(&format!("refused-{arch}"))?;
    for (name, bytes) in cases {
        let path = folder.join(name);
        std::fs::write(&path, bytes)?;
        let mut options = Options::new(arch);
        options.extra = vec!["--package".into(), path.display().to_string()];
        let machine = Machine::start(&options)?;
        let line = machine.wait_for("refused", Duration::from_secs(20))?;
        println!("{name}: {line}");
        std::thread::sleep(Duration::from_millis(200));
        let lines = machine.lines().join("\n");
        ensure!(!lines.contains("ready") && !lines.contains("kernel:"), "{name} was booted:\n{lines}");
    }
    Ok(())
}

/// The same image signed by a key that the loader doesn't know.
fn foreign_package(arch: &str) -> Result<Vec<u8>> {
    let folder: PathBuf = tools::scratch(&format!("foreign-{arch}"))?;
    let (key, out) = (folder.join("foreign.key"), folder.join("out"));
    tools::urmqtt_command(&["key", &key.display().to_string()])?;
    let artifacts = format!("out/{arch}/artifacts");
    tools::urmqtt_command(&[
        "build",
        "--arch",
        arch,
        "--artifacts",
        &artifacts,
        "--key",
        &key.display().to_string(),
        "--out",
        &out.display().to_string(),
    ])?;
    Ok(std::fs::read(out.join("urmqtt.pkg"))?)
}

/// `urmqtt audit --measure` boots an image, reads its page tables, and finds what the manifest says.
#[test]
fn measured_page_tables_are_the_manifests() -> Result<()> {
    for arch in smoke::machine::ARCHES {
        let mut command = std::process::Command::new(tools::urmqtt());
        command.current_dir(tools::root()).args(["audit", "--measure", "--arch", arch]);
        let output = tools::run(&mut command, Duration::from_secs(120))?;
        ensure!(output.status.success(), "{arch}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
