//! One service alone, against a recording: we are all its neighbours, say what they said, and compare what it answers.
//!
//! What was said on a connection is said again once the service has answered all that it had answered by then; so the order that
//! matters is kept, and how fast the service is doesn't matter. Buffers are given back at once, and who gives which buffer isn't
//! compared. Answers are compared connection by connection: their bytes as one stream, and the events between them.

use super::format::{Event, Message, Recording};
use super::meaning::{Kind, Meaning, Payload};
use crate::System;
use crate::memory::Memory;
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use builder::plan::End;
use ipc::pool::{OwnPool, PoolView};
use ipc::ring::{Change, Desc, Epochs, Half, Port};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// What a replay has shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Outcome {
    pub messages_in: u64,
    pub messages_out: u64,
    pub connections: usize,
    /// Answers were compared; not those of a service whose bytes depend on fresh random numbers.
    pub compared: bool,
    /// The first thing that differs from the recording.
    pub difference: Option<String>,
    /// How the service's process ended, if it did.
    pub ended: Option<String>,
}

/// A link's connection.
type Key = (usize, u32);

/// All that one side has said of a connection: bytes, and events at their places among the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    bytes: Vec<u8>,
    events: Vec<(usize, u8, u8)>,
}

impl Said {
    /// `opening`: the message itself is an event, beside its bytes.
    fn add(&mut self, d: Desc, data: &[u8]) {
        if !matches!(d.kind, DATA) {
            self.events.push((self.bytes.len(), d.kind, d.flags));
        }
        self.bytes.extend_from_slice(data);
    }

    /// Bytes and events.
    fn len(&self) -> (usize, usize) {
        (self.bytes.len(), self.events.len())
    }

    fn reaches(&self, (bytes, events): (usize, usize)) -> bool {
        self.bytes.len() >= bytes && self.events.len() >= events
    }

    /// Where this, which goes on, leaves what it should be. What was compared before isn't looked at again.
    fn difference(&self, want: &Said, compared: &mut (usize, usize)) -> Option<String> {
        let (bytes, events) = *compared;
        let common = self.bytes.len().min(want.bytes.len());
        if let Some(at) = (bytes..common).find(|&at| self.bytes[at] != want.bytes[at]) {
            return Some(format!("byte {at} is {:#04x}, was {:#04x}", self.bytes[at], want.bytes[at]));
        }
        let common_events = self.events.len().min(want.events.len());
        *compared = (common, common_events);
        (events..common_events).find(|&at| self.events[at] != want.events[at]).map(|at| {
            let (now, was) = (self.events[at], want.events[at]);
            format!(
                "event {at} is message {} (flags {}) after {} bytes, was message {} (flags {}) after {} bytes",
                now.1, now.2, now.0, was.1, was.2, was.0
            )
        })
    }
}

/// `Up::Data` and `Down::Send` on all links that have connections.
const DATA: u8 = 2;

/// The service's neighbour on one link.
struct Neighbour {
    link: usize,
    name: String,
    kind: Kind,
    task: u16,
    /// The neighbour's side.
    side: usize,
    ours: Half<'static>,
    its: Half<'static>,
    port: Port<'static, Desc, Desc>,
    own: OwnPool<'static>,
    theirs: PoolView<'static>,
    /// Messages that found no room or no buffer yet.
    waiting: VecDeque<(Desc, Vec<u8>)>,
    /// How the service broke the link's rules.
    broken: Option<String>,
}

pub struct Replay<'r> {
    system: &'r System,
    recording: &'r Recording,
    service: usize,
    memory: Memory,
    epochs: Epochs<'static>,
    bells: Vec<OwnedFd>,
    neighbours: Vec<Neighbour>,
    process: Option<Process>,
    want: BTreeMap<Key, Said>,
    seen: BTreeMap<Key, Said>,
    /// How far the two are the same.
    same: BTreeMap<Key, (usize, usize)>,
    outcome: Outcome,
}

/// How much longer than in the recording an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing more may come at the end.
const QUIET: Duration = Duration::from_millis(200);

impl<'r> Replay<'r> {
    /// Starts the service, with its neighbours' links up or about to be.
    pub fn start(system: &'r System, service: &str, recording: &'r Recording) -> Result<Self> {
        let plan = &system.plan;
        let known = || plan.tasks.iter().skip(1).map(|t| &*t.name).collect::<Vec<_>>().join(", ");
        let service =
            plan.task(service).with_context(|| format!("no service {service}, but: {}", known()))? as usize;
        let mut memory = Memory::new(plan, &system.infos)?;
        let bell = |_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bells = plan.tasks.iter().map(bell).collect::<Result<_, _>>()?;
        let epochs = memory.epochs()?;
        let task = &plan.tasks[service];
        ensure!(
            task.name != system.driver,
            "{} drives a device, which no recording stands for; replay one of its neighbours",
            task.name
        );
        ensure!(
            task.ends.iter().any(|end| recording.header.links.contains(&plan.links[end.link].names[0])),
            "{} has none of the recorded links: {}",
            task.name,
            recording.header.links.join(", ")
        );
        let mut neighbours = Vec::new();
        for end in &task.ends {
            if let Some(neighbour) = Neighbour::new(system, &memory, epochs, service, end)? {
                neighbours.push(neighbour);
            }
        }
        for neighbour in &neighbours {
            if memory.life(neighbour.task as usize) == 0 {
                memory.renew(plan, neighbour.task as usize)?;
            }
        }
        let outcome = Outcome {
            messages_in: 0,
            messages_out: 0,
            connections: 0,
            compared: task.config.as_str() == "broker",
            difference: None,
            ended: None,
        };
        let (want, seen, same) = Default::default();
        let mut it = Replay {
            system,
            recording,
            service,
            memory,
            epochs,
            bells,
            neighbours,
            process: None,
            want,
            seen,
            same,
            outcome,
        };
        it.start_service()?;
        Ok(it)
    }

    /// The service's process, for a debugger.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Plays all of it. `progress` is told how many events were played.
    pub fn run(mut self, mut progress: impl FnMut(usize)) -> Result<Outcome> {
        let (recording, mut last) = (self.recording, 0);
        for (i, event) in recording.events.iter().enumerate() {
            let limit = PATIENCE + Duration::from_micros(event.us().saturating_sub(last));
            last = event.us();
            self.play(event, limit)?;
            progress(i + 1);
            if self.outcome.difference.is_some() || self.outcome.ended.is_some() {
                self.outcome.difference =
                    self.outcome.difference.map(|d| format!("at line {} of the recording: {d}", i + 2));
                return self.end();
            }
        }
        self.wait_until(PATIENCE, |it| {
            !it.outcome.compared || it.want.iter().all(|(key, want)| it.has_said(key, want.len()))
        })?;
        let quiet = Instant::now() + QUIET;
        while Instant::now() < quiet && self.outcome.ended.is_none() {
            self.pump(QUIET)?;
        }
        self.end()
    }

    fn end(mut self) -> Result<Outcome> {
        if let Some(mut process) = self.process.take() {
            process.kill();
            process.ended()?;
        }
        self.outcome.connections = self.seen.len();
        Ok(self.outcome)
    }

    fn play(&mut self, event: &Event, limit: Duration) -> Result<()> {
        match event {
            Event::Restart { restart, .. } if *restart == self.system.plan.tasks[self.service].name => {
                self.restart_service(limit)
            }
            Event::Restart { restart, .. } => self.restart_neighbour(restart),
            Event::Message(message) => match self.neighbours.iter().position(|n| n.name == message.link) {
                Some(n) if message.from == self.system.plan.tasks[self.service].name => {
                    self.expect(n, message)
                }
                Some(n) => self.say(n, message, limit),
                None => Ok(()),
            },
        }
    }

    /// An answer of the recording.
    fn expect(&mut self, n: usize, message: &Message) -> Result<()> {
        let neighbour = &self.neighbours[n];
        let desc = message.desc()?;
        let (Some(Meaning::Carries { conn, .. }) | Some(Meaning::Tells { conn })) =
            neighbour.kind.meaning(1 - neighbour.side, desc)
        else {
            return Ok(());
        };
        let key = (neighbour.link, conn);
        self.want.entry(key).or_default().add(desc, &message.data);
        self.compare(&key);
        Ok(())
    }

    /// What a neighbour said, when the service has come as far.
    fn say(&mut self, n: usize, message: &Message, limit: Duration) -> Result<()> {
        let (desc, side) = (message.desc()?, self.neighbours[n].side);
        let meaning = self.neighbours[n].kind.meaning(side, desc);
        let Some(meaning) = meaning else { bail!("no message of link {}: {desc:?}", message.link) };
        if let Meaning::Carries { conn, .. } | Meaning::Tells { conn } = meaning {
            let key = (self.neighbours[n].link, conn);
            if !self.outcome.compared && side == 1 && !self.seen.contains_key(&key) {
                // A connection that the service opened then, and this time didn't.
                return Ok(());
            }
            let want = self.want.get(&key).map_or((0, 0), Said::len);
            if !self.wait_until(limit, |it| !it.outcome.compared || it.has_said(&key, want))? {
                return Ok(());
            }
        }
        if let Meaning::Returns { .. } = meaning {
            return Ok(());
        }
        let data = if matches!(meaning, Meaning::Carries { .. }) { message.data.clone() } else { Vec::new() };
        self.neighbours[n].waiting.push_back((desc, data));
        self.outcome.messages_in += 1;
        self.wait_until(limit, |it| it.neighbours[n].waiting.is_empty())?;
        Ok(())
    }

    fn has_said(&self, key: &Key, want: (usize, usize)) -> bool {
        want == (0, 0) || self.seen.get(key).is_some_and(|seen| seen.reaches(want))
    }

    /// Works until `done`. False: something ended it before, which stands in the outcome.
    fn wait_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            self.pump(Duration::ZERO)?;
            if self.outcome.ended.is_some() || self.outcome.difference.is_some() {
                return Ok(false);
            }
            if done(self) {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                self.outcome.difference = Some(format!("no answer for {:.1} s", limit.as_secs_f64()));
                return Ok(false);
            }
            self.pump(Duration::from_millis(20))?;
        }
    }

    /// Carries what there is; waits for more at most `limit`.
    fn pump(&mut self, limit: Duration) -> Result<()> {
        let mut said = Vec::new();
        let (mut wake, mut idle) = (false, true);
        for neighbour in &mut self.neighbours {
            wake |= neighbour.step(&mut said);
            idle &= neighbour.port.sleep();
        }
        if let Some(broken) = self.neighbours.iter_mut().find_map(|n| n.broken.take()) {
            self.differs(broken);
        }
        for (key, desc, data) in said {
            self.outcome.messages_out += 1;
            self.seen.entry(key).or_default().add(desc, &data);
            self.compare(&key);
        }
        if wake {
            crate::wake(&self.bells[self.service]);
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        let limit = if idle { limit } else { Duration::ZERO };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos() as i64 };
        let mut fds: Vec<_> = [PollFd::new(&process.pidfd, PollFlags::IN)].into();
        let neighbours = self.neighbours.iter().map(|n| &self.bells[n.task as usize]);
        fds.extend(neighbours.map(|bell| PollFd::new(bell, PollFlags::IN)));
        poll(&mut fds, Some(&limit))?;
        let ended = !fds[0].revents().is_empty();
        for neighbour in &self.neighbours {
            let _ = rustix::io::read(&self.bells[neighbour.task as usize], &mut [0u8; 8]);
        }
        if ended {
            self.outcome.ended = Some(process.ended()?);
            self.process = None;
        }
        Ok(())
    }

    /// So far: the rest of an answer may still come. (And more than was recorded, where the recording ended in the middle.)
    fn compare(&mut self, key: &Key) {
        let (Some(seen), Some(want)) = (self.seen.get(key), self.want.get(key)) else { return };
        if !self.outcome.compared {
            return;
        }
        if let Some(difference) = seen.difference(want, self.same.entry(*key).or_default()) {
            self.differs(format!("connection {:#x}: {difference}", key.1));
        }
    }

    /// The first difference counts.
    fn differs(&mut self, what: String) {
        self.outcome.difference.get_or_insert(what);
    }

    fn start_service(&mut self) -> Result<()> {
        self.memory.renew(&self.system.plan, self.service)?;
        self.process = Some(Process::start(self.system, &self.memory, &self.bells, None, self.service)?);
        Ok(())
    }

    /// It ended in the recording: it ends again by itself, or it was killed.
    fn restart_service(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit.min(Duration::from_millis(500));
        while Instant::now() < deadline && self.process.is_some() {
            self.pump(Duration::from_millis(20))?;
        }
        if self.outcome.ended.is_some() {
            return Ok(());
        }
        if let Some(mut process) = self.process.take() {
            process.kill();
            process.ended()?;
        }
        self.want.clear();
        self.seen.clear();
        self.same.clear();
        self.start_service()?;
        // The neighbours see the new epoch before they say anything.
        self.pump(Duration::ZERO)
    }

    fn restart_neighbour(&mut self, name: &str) -> Result<()> {
        let Some(task) = self.system.plan.task(name) else { return Ok(()) };
        if !self.neighbours.iter().any(|n| n.task == task) {
            return Ok(());
        }
        self.memory.renew(&self.system.plan, task as usize)?;
        let (want, seen, same) = (&mut self.want, &mut self.seen, &mut self.same);
        for neighbour in self.neighbours.iter_mut().filter(|n| n.task == task) {
            neighbour.renew(self.epochs, self.service as u16);
            want.retain(|key, _| key.0 != neighbour.link);
            seen.retain(|key, _| key.0 != neighbour.link);
            same.retain(|key, _| key.0 != neighbour.link);
        }
        crate::wake(&self.bells[self.service]);
        Ok(())
    }
}

impl Neighbour {
    /// `None`: a link of which nothing is known here.
    fn new(
        system: &System,
        memory: &Memory,
        epochs: Epochs<'static>,
        service: usize,
        end: &End,
    ) -> Result<Option<Self>> {
        let (plan, side) = (&system.plan, 1 - end.side);
        let link = &plan.links[end.link];
        let Some(kind) = Kind::of(&link.names[0]) else { return Ok(None) };
        let ours = memory.half_to_write(link.halves[side], link.capacity)?;
        let its = memory.half_to_read(link.halves[end.side], link.capacity)?;
        let task = link.tasks[side];
        Ok(Some(Neighbour {
            link: end.link,
            name: link.names[0].clone(),
            kind,
            task,
            side,
            ours,
            its,
            port: Port::new(ours, its, epochs, task, service as u16),
            own: memory.own_pool(link.pools[side])?,
            theirs: memory.view(link.pools[end.side])?,
            waiting: VecDeque::new(),
            broken: None,
        }))
    }

    fn renew(&mut self, epochs: Epochs<'static>, service: u16) {
        self.port = Port::new(self.ours, self.its, epochs, self.task, service);
        self.own.reclaim_all();
        self.waiting.clear();
    }

    /// Carries both ways; what the service said goes to `said`. True: wake it.
    fn step(&mut self, said: &mut Vec<(Key, Desc, Vec<u8>)>) -> bool {
        let (change, mut wake) = self.port.poll(true);
        if change == Change::Down {
            self.own.reclaim_all();
            self.waiting.clear();
        }
        while let Some(desc) = self.port.recv() {
            self.hear(desc, said);
        }
        if let Some(fault) = self.port.fault() {
            self.breaks(format_args!("{fault:?}"));
        }
        while let Some((desc, data)) = self.waiting.front() {
            let Some(desc) = fill(&mut self.own, self.kind, self.side, *desc, data) else { break };
            if !self.port.send(&desc) {
                if let Some(Meaning::Carries { payload, .. }) = self.kind.meaning(self.side, desc) {
                    let _ = self.own.give_back(payload.buf);
                }
                break;
            }
            self.waiting.pop_front();
        }
        self.port.release();
        wake |= self.port.publish();
        wake
    }

    fn hear(&mut self, desc: Desc, said: &mut Vec<(Key, Desc, Vec<u8>)>) {
        match self.kind.meaning(1 - self.side, desc) {
            Some(Meaning::Carries { conn, payload }) => {
                let data = self.copy(payload);
                let back = self.kind.give_back(self.side, payload.buf);
                if !self.port.send(&back) {
                    self.breaks(format_args!("no room to give buffer {} back", payload.buf));
                }
                match self.kind {
                    Kind::Log => eprintln!("log  {}", String::from_utf8_lossy(&data).escape_debug()),
                    _ => said.push(((self.link, conn), desc, data)),
                }
            }
            Some(Meaning::Tells { conn }) => said.push(((self.link, conn), desc, Vec::new())),
            Some(Meaning::Returns { buf }) => {
                if self.own.give_back(buf).is_err() {
                    self.breaks(format_args!("buffer {buf} came back, which wasn't lent"));
                }
            }
            Some(Meaning::Paces) => {}
            None => self.breaks(format_args!("no such message: {desc:?}")),
        }
    }

    fn breaks(&mut self, how: std::fmt::Arguments) {
        self.broken.get_or_insert(format!("it broke the rules of link {}: {how}", self.name));
    }

    fn copy(&mut self, payload: Payload) -> Vec<u8> {
        let mut data = vec![0; payload.len.min(self.theirs.size() as usize)];
        if self.theirs.copy(payload.buf, payload.off, &mut data).is_err() {
            self.breaks(format_args!("{payload:?} is not in the pool"));
        }
        data
    }
}

/// Puts the bytes into a buffer of ours, if the message has some, and names it. `None`: no buffer is free yet.
fn fill(own: &mut OwnPool, kind: Kind, side: usize, desc: Desc, data: &[u8]) -> Option<Desc> {
    let Some(Meaning::Carries { payload, .. }) = kind.meaning(side, desc) else { return Some(desc) };
    let buf = own.take()?;
    let place = own.bytes(buf).get_mut(payload.off..).unwrap_or(&mut []);
    let len = data.len().min(place.len());
    place[..len].copy_from_slice(&data[..len]);
    own.lend(buf);
    Some(Desc { buf, ..desc })
}
