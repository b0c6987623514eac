//! One task's process: what it gets, and what it left when it ended.

use crate::memory::{Memory, Shared};
use crate::record::Recorder;
use crate::{Device, System};
use anyhow::{Context, Result};
use builder::plan::Task;
use command_fds::{CommandFdExt, FdMapping};
use ipc::abi::{CLOCK_VADDR, EPOCH_VADDR, HEAP_VADDR, INFO_VADDR, PAGE};
use ipc::hosted::{self, Header, Map, NONE, START};
use ipc::manifest::{CapKind, READ, WRITE};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use zerocopy::FromZeros;

/// Standard output, where the console writes.
const STDOUT: i32 = 1;

pub struct Process {
    child: Child,
    pub pidfd: OwnedFd,
    report: OwnedFd,
}

/// Descriptors for the child, numbered from [`START`].
struct Descriptors(Vec<FdMapping>);

impl Descriptors {
    fn next(&self) -> i32 {
        START + 1 + self.0.len() as i32
    }

    fn add(&mut self, fd: BorrowedFd) -> Result<i32> {
        let child_fd = self.next();
        self.0.push(FdMapping { parent_fd: fd.try_clone_to_owned()?, child_fd });
        Ok(child_fd)
    }
}

impl Process {
    /// Starts task `i`. `bells` are all tasks' words.
    pub fn start(
        system: &System,
        memory: &Memory,
        bells: &[OwnedFd],
        recorder: Option<&Recorder>,
        i: usize,
    ) -> Result<Self> {
        let task = &system.plan.tasks[i];
        let mut fds = Descriptors(Vec::new());
        let (report, report_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (device_kind, device) = match &system.device {
            Some(device) if task.name == system.driver => (device.kind(), fds.add(device.fd())?),
            _ => (hosted::DEVICE_NONE, NONE),
        };
        let header = Header {
            bell: fds.add(bells[i].as_fd())?,
            report: fds.add(report_end.as_fd())?,
            device_kind,
            device,
            serial: if task.serial { STDOUT } else { NONE },
            stack: task.stack_pages as u64 * PAGE as u64,
            ..Header::new_zeroed()
        };
        let signals = signals(task, bells, |handle| recorder?.bell_of(i, handle), &mut fds)?;
        let maps = maps(system, memory, |region| recorder?.half(i, region), i, &mut fds)?;
        let document = Shared::constant("start", &hosted::document(header, &maps, &signals))?;
        fds.0.push(FdMapping { parent_fd: document.read, child_fd: START });
        let path = system.programs.join(task.program.as_str());
        let mut command = Command::new(&path);
        command.env_clear().stdin(Stdio::null());
        // A group of its own: Ctrl-C is for the supervisor, which ends the tasks.
        command.process_group(0).fd_mappings(fds.0).expect("each number once");
        if !task.serial {
            command.stdout(Stdio::null());
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", path.display()))?;
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        Ok(Process { child, pidfd, report })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for the end, which `pidfd` has told, and says what it was.
    pub fn ended(&mut self) -> Result<String> {
        let status = self.child.wait()?;
        let mut bytes = [0; 257];
        let n = rustix::io::read(&self.report, &mut bytes)?;
        Ok(describe(&bytes[..n], status))
    }
}

/// The last words if there are any, else what Linux says.
fn describe(report: &[u8], status: ExitStatus) -> String {
    const SIGSYS: i32 = rustix::process::Signal::SYS.as_raw();
    const SIGSEGV: i32 = rustix::process::Signal::SEGV.as_raw();
    const SIGBUS: i32 = rustix::process::Signal::BUS.as_raw();
    const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();
    match (report.split_first(), status.signal()) {
        (Some((0, _)), _) => "ended by itself".into(),
        (Some((_, message)), _) => format!("panic: {}", String::from_utf8_lossy(message).escape_debug()),
        (None, Some(SIGSYS)) => "system call beyond its manifest".into(),
        (None, Some(SIGSEGV | SIGBUS)) => "memory beyond its manifest".into(),
        (None, Some(SIGKILL)) => "killed".into(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => format!("{status}"),
    }
}

/// A peer's bell a signal capability, or that of who stands between them.
fn signals<'b>(
    task: &Task,
    bells: &[OwnedFd],
    between: impl Fn(usize) -> Option<BorrowedFd<'b>>,
    fds: &mut Descriptors,
) -> Result<Vec<i32>> {
    let mut by_peer = std::collections::HashMap::new();
    let mut signals = Vec::new();
    for (handle, cap) in task.caps.iter().map(|c| c.cap).enumerate() {
        if let Some(bell) = between(handle) {
            signals.push(fds.add(bell)?);
            continue;
        }
        let peer = (cap.kind == CapKind::Signal as u16).then_some(cap.object);
        signals.push(match peer {
            None => NONE,
            Some(peer) => match by_peer.get(&peer) {
                Some(&fd) => fd,
                None => *by_peer.entry(peer).or_insert(fds.add(bells[peer as usize].as_fd())?),
            },
        });
    }
    Ok(signals)
}

/// Regions as the manifest gives them, the kernel's pages, and the heap.
fn maps<'b>(
    system: &System,
    memory: &Memory,
    between: impl Fn(usize) -> Option<&'b Shared>,
    i: usize,
    fds: &mut Descriptors,
) -> Result<Vec<Map>> {
    let task = &system.plan.tasks[i];
    let mut read_only = |vaddr, shared: &Shared| {
        Ok::<_, anyhow::Error>(Map {
            vaddr,
            len: shared.len,
            fd: fds.add(shared.read.as_fd())?,
            rights: READ,
        })
    };
    let mut maps = vec![
        read_only(INFO_VADDR, &memory.infos[i])?,
        read_only(CLOCK_VADDR, &memory.clock)?,
        read_only(EPOCH_VADDR, &memory.epochs)?,
        Map { vaddr: HEAP_VADDR, len: task.heap_pages as u64 * PAGE as u64, fd: NONE, rights: READ | WRITE },
    ];
    for map in &task.maps {
        let vaddr = system.plan.regions[map.region].vaddr;
        let region = memory.regions[map.region].as_ref();
        maps.push(match between(map.region).filter(|_| !map.write).or(region) {
            None => continue,
            Some(shared) if map.write => {
                Map { vaddr, len: shared.len, fd: fds.add(shared.write.as_fd())?, rights: READ | WRITE }
            }
            Some(shared) => Map { vaddr, len: shared.len, fd: fds.add(shared.read.as_fd())?, rights: READ },
        });
    }
    Ok(maps)
}

impl Device {
    fn kind(&self) -> u32 {
        match self {
            Device::Listener(_) => hosted::DEVICE_LISTENER,
            Device::Tap(_) => hosted::DEVICE_TAP,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Device::Listener(fd) | Device::Tap(fd) => fd.as_fd(),
        }
    }
}
