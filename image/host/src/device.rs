//! What the driving task gets: a listening socket, or a TAP device in a network namespace of its own.

use anyhow::{Context, Result, bail};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

pub enum Device {
    Listener(OwnedFd),
    Tap(OwnedFd),
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// A listening socket; its connections inherit that small segments go out at once.
pub fn listener(address: SocketAddrV4) -> Result<(Device, SocketAddrV4)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, &address)
        .with_context(|| format!("cannot listen on {address}: another --port?"))?;
    rustix::net::listen(&socket, BACKLOG)?;
    let bound = SocketAddrV4::try_from(rustix::net::getsockname(&socket)?).context("an IPv4 socket")?;
    Ok((Device::Listener(socket), bound))
}

/// The network of the namespace: its own address, and the one that the tasks serve.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 83, 83, 1);
pub const SERVED: Ipv4Addr = Ipv4Addr::new(10, 83, 83, 2);
const NAME: &str = "urmqtt0";

/// Moves this process to a new network namespace and makes a TAP device there. Before any thread is started: without root a
/// user namespace is needed too.
pub fn tap() -> Result<Device> {
    let (root, user, group) = (is_root(), rustix::process::geteuid(), rustix::process::getegid());
    let flags = if root { UnshareFlags::NEWNET } else { UnshareFlags::NEWNET | UnshareFlags::NEWUSER };
    // SAFETY: no descriptor table or file system context is unshared, which is what the function warns of.
    unsafe { unshare_unsafe(flags) }.context(
        "no network namespace can be made here (root or user namespaces are needed); try --mode sockets",
    )?;
    if !root {
        // user_namespaces(7): we are its root, so that `ip` may do its work.
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
        std::fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))?;
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .context("cannot open /dev/net/tun; try --mode sockets")?;
    attach(&device)?;
    ip(&["link", "set", "lo", "up"])?;
    ip(&["addr", "add", &format!("{HOST}/24"), "dev", NAME])?;
    ip(&["link", "set", NAME, "up"])?;
    Ok(Device::Tap(device))
}

/// Root needs no user namespace of its own.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn ip(words: &[&str]) -> Result<()> {
    let output =
        Command::new("ip").args(words).output().context("the command `ip` (package iproute2) is needed")?;
    if !output.status.success() {
        bail!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Makes the device: whole frames, a virtio-net header before each, checksums left out between programs of this machine.
fn attach(device: &OwnedFd) -> Result<()> {
    /// `TUN_F_CSUM`
    const CHECKSUM: libc::c_ulong = 1;
    let header: libc::c_int = 12;
    // SAFETY: an all-zero `ifreq` is valid: integers and bytes.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(NAME.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    let fd = device.as_raw_fd();
    // SAFETY: each call gets what tun's interface asks for: an `ifreq`, a pointer to an int, a number.
    let results = unsafe {
        [
            libc::ioctl(fd, libc::TUNSETIFF as _, &request),
            libc::ioctl(fd, libc::TUNSETVNETHDRSZ as _, &header),
            libc::ioctl(fd, libc::TUNSETOFFLOAD as _, CHECKSUM),
        ]
    };
    if results.iter().any(|&r| r < 0) {
        return Err(std::io::Error::last_os_error()).context("cannot make a TAP device; try --mode sockets");
    }
    Ok(())
}
