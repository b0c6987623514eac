//! The thread that carries recorded links, and what their tasks are given instead of each other.

use super::format::{Header, Writer};
use super::meaning::Kind;
use super::relay::{Relay, Side};
use crate::memory::{Memory, Shared};
use crate::wake;
use anyhow::{Result, bail};
use builder::plan::Plan;
use ipc::abi::PAGE;
use ipc::ring::{Half, Port, half_bytes};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

/// What is recorded, and where to.
pub struct Request {
    pub header: Header,
    pub path: PathBuf,
    /// Bytes at most.
    pub limit: u64,
}

pub struct Recorder {
    /// Which task reads a half of ours instead of which region.
    halves: Vec<(u16, usize, Shared)>,
    /// Which handle of which task rings us.
    handles: Vec<(u16, u16)>,
    bell: OwnedFd,
    /// Relaxed: it is followed by a ring of the bell, and carries nothing but itself.
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Before the first task is started.
    pub fn start(request: Request, plan: &Plan, memory: &Memory, bells: &[OwnedFd]) -> Result<Self> {
        let (mut halves, mut handles, mut relays) = (Vec::new(), Vec::new(), Vec::new());
        for name in &request.header.links {
            let (number, kind) = find(plan, name)?;
            relays.push(relay(plan, memory, number, kind, &mut halves)?);
            for (i, task) in plan.tasks.iter().enumerate() {
                let ends = task.ends.iter().filter(|end| end.link == number);
                handles.extend(ends.map(|end| (i as u16, end.signal)));
            }
        }
        let file = Writer::create(&request.path, &request.header, request.limit)?;
        eprintln!("recording {} to {}", request.header.links.join(", "), request.path.display());
        eprintln!("{}", request.header.says);
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(AtomicBool::new(false));
        let carrier = Carrier {
            relays,
            file: Some(file),
            bell: bell.try_clone()?,
            bells: bells.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>()?,
            stop: stop.clone(),
            began: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(|| carrier.run())?;
        Ok(Recorder { halves, handles, bell, stop, thread: Some(thread) })
    }

    /// What `task` reads in the place of `region`.
    pub fn half(&self, task: usize, region: usize) -> Option<&Shared> {
        self.halves.iter().find(|h| (h.0 as usize, h.1) == (task, region)).map(|h| &h.2)
    }

    /// Whom `task` rings by `handle`, if that is us.
    pub fn bell_of(&self, task: usize, handle: usize) -> Option<BorrowedFd<'_>> {
        self.handles.contains(&(task as u16, handle as u16)).then(|| self.bell.as_fd())
    }

    /// A task starts again: look at the epochs.
    pub fn ring(&self) {
        wake(&self.bell);
    }
}

impl Drop for Recorder {
    /// The file is whole when this returns.
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The link with this name that can be recorded.
fn find(plan: &Plan, name: &str) -> Result<(usize, Kind)> {
    let can = |link: &builder::plan::Link| Kind::of(&link.names[0]).filter(|&kind| kind != Kind::Log);
    let found = plan.links.iter().enumerate().find(|(_, link)| link.names[0] == name);
    match found.and_then(|(i, link)| Some((i, can(link)?))) {
        Some(found) => Ok(found),
        None => {
            let known: Vec<_> =
                plan.links.iter().filter(|l| can(l).is_some()).map(|l| &*l.names[0]).collect();
            bail!("no link {name} can be recorded here, but: {}", known.join(", "))
        }
    }
}

fn relay(
    plan: &Plan,
    memory: &Memory,
    number: usize,
    kind: Kind,
    halves: &mut Vec<(u16, usize, Shared)>,
) -> Result<Relay> {
    let (link, epochs) = (&plan.links[number], memory.epochs()?);
    let mut side = |side: usize| {
        let (task, other) = (link.tasks[side], link.tasks[1 - side]);
        let shared = Shared::new("relay", half_bytes(link.capacity).next_multiple_of(PAGE) as u64)?;
        // SAFETY: of this capacity's size, mapped for ever, zeroed, and written by the relay alone.
        let ours = unsafe { Half::from_raw(shared.map_write()?, link.capacity) };
        let its = memory.half_to_read(link.halves[side], link.capacity)?;
        halves.push((task, link.halves[1 - side], shared));
        Ok::<_, anyhow::Error>(Side {
            task,
            epoch: 0,
            name: plan.tasks[task as usize].name.clone(),
            ours,
            its,
            pool: memory.view(link.pools[side])?,
            port: Port::new(ours, its, epochs, other, task),
            fault_since: None,
            faulted: false,
        })
    };
    Ok(Relay { link: link.names[0].clone(), kind, sides: [side(0)?, side(1)?], epochs })
}

/// The thread's own.
struct Carrier {
    relays: Vec<Relay>,
    /// `None`: it could not be written on.
    file: Option<Writer>,
    bell: OwnedFd,
    bells: Vec<OwnedFd>,
    stop: Arc<AtomicBool>,
    began: Instant,
}

impl Carrier {
    fn run(mut self) {
        while !self.stop.load(Relaxed) {
            if self.carry() {
                continue;
            }
            let idle = self.relays.iter_mut().fold(true, |idle, relay| idle & relay.sleep());
            if idle {
                let written = self.file.as_mut().map_or(Ok(()), Writer::flush);
                self.check(written);
            }
            // Not idle and yet nothing carried: the receiver's ring is full, or it isn't up yet and rings when it is.
            self.wait(if idle { 100 } else { 1 });
        }
        self.carry();
        let written = self.file.as_mut().map_or(Ok(()), Writer::flush);
        self.check(written);
    }

    fn carry(&mut self) -> bool {
        let us = self.began.elapsed().as_micros() as u64;
        let mut busy = false;
        for i in 0..self.relays.len() {
            let (step, written) = self.relays[i].step(us, &mut self.file);
            self.check(written);
            busy |= step.busy;
            let rung = self.bells.iter().enumerate().filter(|(task, _)| step.wake >> task & 1 == 1);
            rung.for_each(|(_, bell)| wake(bell));
        }
        busy
    }

    /// The system runs on without its recording.
    fn check(&mut self, written: Result<()>) {
        if let Err(error) = written {
            eprintln!("recorder: the recording ends here: {error:#}");
            if let Some(mut file) = self.file.take() {
                let _ = file.flush();
            }
        }
    }

    fn wait(&self, ms: i64) {
        let limit = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
        let _ = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&limit));
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }
}
