//! `urmqtt run`: an image in QEMU, with the serial line on standard output.

use crate::{Arch, build, certs, forward, kvm};
use anyhow::{Context, Result, bail};
use builder::config::Config;
use clap::ValueEnum;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Build the development image and run it in QEMU until Ctrl-C
///
/// Forwards 127.0.0.1:PORT to the broker, once it serves. The serial line is on standard output; what is typed goes to the console, which
/// knows `help`. KVM is used where it runs a guest at speed, else QEMU's emulation.
///
/// Example: urmqtt run --arch aarch64 --port 18883 --boot uefi
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    build: build::Args,
    /// Port on 127.0.0.1
    #[arg(long, default_value_t = 8883, value_name = "PORT")]
    port: u16,
    /// Processors
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    smp: u8,
    #[arg(long, default_value = "256M", value_name = "SIZE")]
    memory: String,
    /// How the loader gets control
    #[arg(long, value_enum, default_value_t = Boot::Direct)]
    boot: Boot,
    /// aarch64: version of the interrupt controller
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=3))]
    gic: u8,
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    accel: Accel,
    /// Run what is in --out, as it is
    #[arg(long)]
    no_build: bool,
    /// Run this package (direct boot)
    #[arg(long, value_name = "FILE", conflicts_with = "no_build")]
    package: Option<PathBuf>,
    /// End when the guest resets, instead of starting it again
    #[arg(long)]
    no_reboot: bool,
    /// One more word for QEMU; may be repeated
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    qemu_arg: Vec<String>,
    /// Print QEMU's command line and do nothing
    #[arg(long)]
    print: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Boot {
    /// QEMU loads the loader: PVH on x86_64, a Linux Image on aarch64
    Direct,
    /// Firmware loads it from the disk image
    Uefi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Accel {
    /// KVM where it is usable
    Auto,
    Kvm,
    Tcg,
}

pub fn run(mut args: Args) -> Result<()> {
    args.build.dev = true;
    if !args.no_build && args.package.is_none() {
        certs::ensure(&args.build.certs)?;
        build::build(&args.build)?;
    }
    let mut command = qemu(&args)?;
    let guest = Config::parse(&build::config(args.build.config.as_deref())?)?.network.port.get();
    if args.print {
        command.args(network(&format!(",hostfwd=tcp:127.0.0.1:{}-:{guest}", args.port)));
        println!("{command:?}");
        return Ok(());
    }
    let (monitor, serial) = forward::start(args.port, guest)?;
    // QEMU inherits it.
    rustix::io::fcntl_setfd(&monitor, rustix::io::FdFlags::empty())?;
    command.args(network("")).stdout(serial);
    command.args(["-chardev", &format!("socket,id=monitor,fd={}", monitor.as_raw_fd())]);
    command.args(["-mon", "chardev=monitor,mode=control"]);
    // From here on this process is QEMU: Ctrl-C and the terminal are its own.
    let error = command.exec();
    let program = command.get_program().display().to_string();
    Err(error).with_context(|| format!("cannot start {program}; image/setup.sh installs it"))
}

/// QEMU with a package as it is, for who wants to read its serial line; the broker's port is any.
pub fn headless(build: build::Args) -> Result<Command> {
    let args = Args {
        build,
        port: 0,
        smp: 1,
        memory: "256M".into(),
        boot: Boot::Direct,
        gic: 2,
        accel: Accel::Auto,
        no_build: true,
        package: None,
        no_reboot: true,
        qemu_arg: Vec::new(),
        print: false,
    };
    let mut command = qemu(&args)?;
    command.args(network(""));
    Ok(command)
}

fn qemu(args: &Args) -> Result<Command> {
    let arch = args.build.arch;
    let kvm = match args.accel {
        Accel::Kvm => true,
        Accel::Tcg => false,
        Accel::Auto => arch == Arch::native() && kvm::usable(),
    };
    let mut command = Command::new(format!("qemu-system-{}", arch.name()));
    let machine = match arch {
        Arch::X86_64 => "q35".to_string(),
        Arch::Aarch64 => format!("virt,gic-version={}", args.gic),
    };
    command.args(["-machine", &machine, "-accel", if kvm { "kvm" } else { "tcg" }]);
    command.args([
        "-cpu",
        if kvm { "host" } else { "max" },
        "-smp",
        &args.smp.to_string(),
        "-m",
        &args.memory,
    ]);
    command.args(["-nodefaults", "-display", "none", "-serial", "stdio"]);
    if args.no_reboot {
        command.arg("-no-reboot");
    }
    match args.boot {
        Boot::Direct => direct(args, &mut command)?,
        Boot::Uefi => uefi(args, &mut command)?,
    }
    command.args(["-device", "virtio-rng-pci"]).args(&args.qemu_arg);
    Ok(command)
}

/// The card, on QEMU's user network.
fn network(forward: &str) -> [String; 4] {
    let words =
        ["-netdev", &format!("user,id=net{forward}"), "-device", "virtio-net-pci,netdev=net,romfile="];
    words.map(str::to_owned)
}

/// The loader as kernel, the package as its first module.
fn direct(args: &Args, command: &mut Command) -> Result<()> {
    let loader = existing(args.build.artifacts().join("loader"), "`make artifacts` builds it")?;
    let package = args.package.clone().unwrap_or_else(|| args.build.package());
    let package = existing(package, "`urmqtt build` builds it")?;
    command.arg("-kernel").arg(loader).arg("-initrd").arg(package);
    Ok(())
}

fn uefi(args: &Args, command: &mut Command) -> Result<()> {
    if args.package.is_some() {
        bail!("--package goes with --boot direct; the disk image has its package in it");
    }
    let disk = existing(args.build.disk(), "`urmqtt build` builds it")?;
    let (code, variables) = firmware(args.build.arch)?;
    let own = args.build.out().join("uefi-variables.fd");
    std::fs::copy(&variables, &own).with_context(|| format!("cannot copy {}", variables.display()))?;
    command.arg("-drive").arg(drive("if=pflash,format=raw,readonly=on,file=", &code));
    command.arg("-drive").arg(drive("if=pflash,format=raw,file=", &own));
    command.arg("-drive").arg(drive("if=none,id=disk,format=raw,snapshot=on,file=", &disk));
    command.args(["-device", "virtio-blk-pci,drive=disk,bootindex=0"]);
    Ok(())
}

/// QEMU reads a comma in a value when it is doubled.
fn drive(options: &str, file: &Path) -> OsString {
    format!("{options}{}", file.display().to_string().replace(',', ",,")).into()
}

/// Code and a template of variables, as Debian's and Fedora's packages place them.
fn firmware(arch: Arch) -> Result<(PathBuf, PathBuf)> {
    let pairs: &[(&str, &str)] = match arch {
        Arch::X86_64 => &[
            ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
            ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
        ],
        Arch::Aarch64 => &[
            ("/usr/share/AAVMF/AAVMF_CODE.fd", "/usr/share/AAVMF/AAVMF_VARS.fd"),
            (
                "/usr/share/edk2/aarch64/QEMU_EFI-pflash.raw",
                "/usr/share/edk2/aarch64/vars-template-pflash.raw",
            ),
        ],
    };
    let found =
        pairs.iter().find(|(code, variables)| Path::new(code).exists() && Path::new(variables).exists());
    let Some((code, variables)) = found else {
        bail!(
            "there is no UEFI firmware for {}; image/setup.sh installs it (ovmf, qemu-efi-aarch64)",
            arch.name()
        );
    };
    Ok((code.into(), variables.into()))
}

fn existing(path: PathBuf, advice: &str) -> Result<PathBuf> {
    if !path.exists() {
        bail!("{} is missing; {advice}", path.display());
    }
    Ok(path)
}
