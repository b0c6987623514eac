//! The supervisor's part: it starts the tasks, restarts what stops by the manifest's policy, and ends them all.

use crate::System;
use crate::memory::Memory;
use crate::process::Process;
use crate::record::{Recorder, Request};
use crate::wake;
use anyhow::{Context, Result};
use console::command;
use ipc::link::console::Command;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io::BufRead;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use supervisor::config::Restart;
use supervisor::policy::{Decision, History};

/// Why [`Supervisor::run`] came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// SIGINT, SIGTERM or the command `poweroff`.
    Asked,
    /// The command `reboot`.
    Reboot,
    /// This task failed too often.
    GaveUp(String),
}

struct Task {
    process: Option<Process>,
    history: History,
    start_at: Option<u64>,
}

pub struct Supervisor {
    system: System,
    memory: Memory,
    bells: Vec<OwnedFd>,
    recorder: Option<Recorder>,
    /// By the plan's numbers; entry 0, this process, has none of it.
    tasks: Vec<Task>,
    began: Instant,
    /// SIGINT or SIGTERM has come. Relaxed: set by a handler, carries nothing but itself.
    asked: Arc<AtomicBool>,
    /// Readable when a signal has come or a line was typed.
    wake: UnixStream,
    lines: Receiver<String>,
}

impl Supervisor {
    /// Starts every task. `commands`: lines on standard input are obeyed.
    pub fn start(system: System, commands: bool, record: Option<Request>) -> Result<Self> {
        let memory = Memory::new(&system.plan, &system.infos)?;
        let plan = &system.plan;
        // A full one has been rung; nobody waits for who can't be told more often.
        let bell = |_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bells: Vec<_> = plan.tasks.iter().map(bell).collect::<Result<_, _>>()?;
        let recorder = record.map(|request| Recorder::start(request, plan, &memory, &bells)).transpose()?;
        let task = |t: &builder::plan::Task| Task {
            process: None,
            history: History::new(Restart {
                delay_ms: t.restart.delay_ms.get() as u32,
                max_delay_ms: t.restart.max_delay_ms.get() as u32,
                limit: t.restart.limit.get() as u32,
                window_s: t.restart.window_s.get() as u32,
            }),
            start_at: Some(0),
        };
        let tasks = plan.tasks.iter().map(task).collect();
        let (wake, waker) = UnixStream::pair()?;
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order: who is woken finds the wish.
            signal_hook::flag::register(signal, asked.clone())?;
            signal_hook::low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        let (typed, lines) = channel();
        if commands {
            read_lines(typed, waker);
        }
        let mut it =
            Supervisor { system, memory, bells, recorder, tasks, began: Instant::now(), asked, wake, lines };
        it.tasks[0].start_at = None;
        it.start_due()?;
        Ok(it)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn say(&self, text: std::fmt::Arguments) {
        eprintln!("[{:>10.4}] supervisor  {text}", self.began.elapsed().as_secs_f64());
    }

    /// Process of each task that runs.
    pub fn pids(&self) -> impl Iterator<Item = (&str, u32)> {
        let names = self.system.plan.tasks.iter().map(|t| &*t.name);
        names.zip(&self.tasks).filter_map(|(name, t)| Some((name, t.process.as_ref()?.pid())))
    }

    /// Serves until asked to stop. `also` is looked at now and then: true ends it.
    pub fn run(&mut self, mut also: impl FnMut() -> Result<bool>) -> Result<Why> {
        loop {
            if also()? {
                return Ok(Why::Asked);
            }
            let Some(woken) = self.wait()? else { continue };
            if woken {
                drain(&self.wake);
                while let Ok(line) = self.lines.try_recv() {
                    if let Some(why) = self.obey(&line) {
                        return Ok(why);
                    }
                }
            }
            if self.asked.load(Relaxed) {
                return Ok(Why::Asked);
            }
            if let Some(name) = self.look_for_stopped()? {
                return Ok(Why::GaveUp(name));
            }
            self.start_due()?;
        }
    }

    /// Waits for the end of a process, a signal, a line, or the time of a start. True: the waker.
    fn wait(&self) -> Result<Option<bool>> {
        let now = self.now();
        let next = self.tasks.iter().filter_map(|t| t.start_at).min();
        let ns = next.map_or(100_000_000, |at| at.saturating_sub(now).min(100_000_000));
        let limit = Timespec { tv_sec: 0, tv_nsec: ns as i64 };
        let wake = self.wake.as_fd();
        let pidfds = self
            .tasks
            .iter()
            .filter_map(|t| t.process.as_ref())
            .map(|p| PollFd::new(&p.pidfd, PollFlags::IN));
        let mut all: Vec<_> = [PollFd::new(&wake, PollFlags::IN)].into_iter().chain(pidfds).collect();
        match poll(&mut all, Some(&limit)) {
            Ok(_) => Ok(Some(!all[0].revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error).context("poll"),
        }
    }

    /// The task that failed too often, if there is one.
    fn look_for_stopped(&mut self) -> Result<Option<String>> {
        let now = self.now();
        for i in 1..self.tasks.len() {
            let Some(process) = &mut self.tasks[i].process else { continue };
            if !has_ended(process)? {
                continue;
            }
            let reason = process.ended()?;
            self.tasks[i].process = None;
            let (name, life) = (self.system.plan.tasks[i].name.clone(), self.memory.life(i));
            match self.tasks[i].history.stopped(now) {
                Decision::StartAt(at) => {
                    let ms = at.saturating_sub(now) / 1_000_000;
                    self.say(format_args!("{name} life {life}: {reason}; again in {ms} ms"));
                    self.tasks[i].start_at = Some(at);
                }
                Decision::GiveUp => {
                    self.say(format_args!("{name} life {life}: {reason}; too often"));
                    return Ok(Some(name));
                }
            }
        }
        Ok(None)
    }

    fn start_due(&mut self) -> Result<()> {
        let now = self.now();
        for i in 0..self.tasks.len() {
            if self.tasks[i].start_at.is_some_and(|at| at <= now) {
                self.tasks[i].start_at = None;
                self.start_task(i)?;
                if self.memory.life(i) > 1 {
                    self.say(format_args!("{}: restarted", self.system.plan.tasks[i].name));
                }
            }
        }
        Ok(())
    }

    /// As the kernel does it: fresh seed, zeroed halves, next epoch, a signal to the neighbours, go.
    fn start_task(&mut self, i: usize) -> Result<()> {
        let task = &self.system.plan.tasks[i];
        self.memory.renew(&self.system.plan, i)?;
        for (peer, bell) in self.bells.iter().enumerate() {
            if task.neighbours >> peer & 1 == 1 {
                wake(bell);
            }
        }
        if let Some(recorder) = &self.recorder {
            recorder.ring();
        }
        self.tasks[i].process =
            Some(Process::start(&self.system, &self.memory, &self.bells, self.recorder.as_ref(), i)?);
        Ok(())
    }

    /// A line that was typed.
    fn obey(&mut self, line: &str) -> Option<Why> {
        let names = self.system.plan.tasks.iter().enumerate().map(|(i, t)| (&*t.name, i as u16));
        match command::parse(line, names)? {
            command::Request::Command(Command::Kill { task: 0 } | Command::Reboot) => {
                return Some(Why::Reboot);
            }
            command::Request::Command(Command::PowerOff) => return Some(Why::Asked),
            command::Request::Command(Command::Kill { task }) => match &mut self.tasks[task as usize].process
            {
                Some(process) => process.kill(),
                None => self.say(format_args!("it is stopped already")),
            },
            command::Request::Command(Command::Status) => {
                let pids: Vec<_> = self.pids().map(|(name, pid)| (name.to_string(), pid)).collect();
                pids.iter().for_each(|(name, pid)| self.say(format_args!("{name:<12} pid {pid}")));
            }
            command::Request::Help => self.say(format_args!("{}", command::HELP)),
            command::Request::Wrong(text) => self.say(format_args!("{text}")),
        }
        None
    }

    /// Ends all tasks, the driver first: no connection is taken that nobody serves.
    fn stop(&mut self) {
        for task in &mut self.tasks {
            if let Some(process) = &mut task.process {
                process.kill();
            }
        }
        for process in self.tasks.iter_mut().filter_map(|t| t.process.as_mut()) {
            let _ = process.ended();
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn has_ended(process: &Process) -> Result<bool> {
    let mut one = [PollFd::new(&process.pidfd, PollFlags::IN)];
    Ok(poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 1)
}

fn drain(wake: &UnixStream) {
    let mut bytes = [0; 64];
    let _ = rustix::net::recv(wake, &mut bytes, rustix::net::RecvFlags::DONTWAIT);
}

/// Lines of standard input, each with a byte for the waker.
fn read_lines(typed: Sender<String>, waker: UnixStream) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if typed.send(line).is_err() || rustix::io::write(&waker, &[1]).is_err() {
                return;
            }
        }
    });
}
