//! After the seal: faults, restarts, commands. The supervisor waits on nobody: each wait has what it waits for in one mask.

use crate::boot::{control, start, tasks, write_boot_page};
use crate::machine;
use alloc::vec::Vec;
use ipc::abi::{FaultRecord, SIGNAL_FAULT, TaskOp, TaskState, TaskStatus};
use ipc::link::console::{Command, Level};
use ipc::ring::Desc;
use rt::{Bell, Link, Task};
use supervisor::Config;
use supervisor::entropy::Seeds;
use supervisor::policy::{Decision, History};
use supervisor::report::Fault;

/// For the console to print the last line before a reset.
const LAST_WORDS_NS: u64 = 300_000_000;

struct Child<'a> {
    number: u16,
    name: &'a str,
    history: History,
    /// Stopped; when it is to be started, nanoseconds.
    start_at: Option<u64>,
}

/// What is done once the console had its time.
#[derive(Clone, Copy)]
enum End {
    Reboot,
    PowerOff,
}

struct Supervisor<'a> {
    task: &'a Task,
    config: &'a Config,
    seeds: Seeds,
    children: Vec<Child<'a>>,
    end: Option<(u64, End)>,
}

pub fn run(task: &Task, config: &Config, seeds: Seeds) -> ! {
    let child = |(number, name): (u16, _)| Child {
        number,
        name,
        history: History::new(config.tasks[number as usize].restart),
        start_at: None,
    };
    let children = tasks(config).map(child).collect();
    let mut supervisor = Supervisor { task, config, seeds, children, end: None };
    let has_commands = task.link_names().any(|name| name == "command");
    let mut commands: Option<Link<Desc, Command>> = has_commands.then(|| task.end("command"));
    loop {
        let mut links: Vec<&mut dyn Bell> = Vec::new();
        links.extend(commands.as_mut().map(|link| link as &mut dyn Bell));
        let bits = task.wait(&mut links, supervisor.deadline());
        if bits >> SIGNAL_FAULT & 1 == 1 {
            supervisor.look_for_stopped();
        }
        supervisor.start_due();
        if let Some(link) = &mut commands {
            link.poll(true);
            while let Some(command) = link.end.recv() {
                supervisor.obey(command);
            }
        }
        supervisor.end_when_due();
    }
}

impl Supervisor<'_> {
    fn deadline(&self) -> u64 {
        let starts = self.children.iter().filter_map(|c| c.start_at);
        starts.chain(self.end.map(|(at, _)| at)).min().unwrap_or(u64::MAX)
    }

    fn look_for_stopped(&mut self) {
        for child in &mut self.children {
            if child.start_at.is_some() {
                continue;
            }
            let handle = control(self.task, child.name);
            let status: TaskStatus = rt::task_read(handle);
            if status.state != TaskState::Faulted as u32 {
                continue;
            }
            let record: FaultRecord = rt::task_read(handle);
            let fault = Fault { record: &record, addresses: self.config.development };
            let now = rt::now_ns();
            match child.history.stopped(now) {
                Decision::StartAt(at) => {
                    let ms = at.saturating_sub(now) / 1_000_000;
                    rt::log!(Error, "{} life {}: {fault}; again in {ms} ms", child.name, record.epoch);
                    child.start_at = Some(at);
                }
                Decision::GiveUp => {
                    rt::log!(Error, "{} life {}: {fault}; too often, rebooting", child.name, record.epoch);
                    child.start_at = Some(u64::MAX);
                    self.end = Some((now + LAST_WORDS_NS, End::Reboot));
                }
            }
        }
    }

    fn start_due(&mut self) {
        let now = rt::now_ns();
        for child in &mut self.children {
            if child.start_at.is_some_and(|at| at <= now) {
                child.start_at = None;
                write_boot_page(self.task, child.name, &self.seeds.next(), None);
                start(self.task, child.name);
                rt::log!(Info, "{}: restarted", child.name);
            }
        }
    }

    /// Commands come from development images' consoles only.
    fn obey(&mut self, command: Command) {
        if !self.config.development {
            return;
        }
        match command {
            Command::Kill { task: 0 } => panic!("killed by command"),
            Command::Kill { task } => match self.children.iter().find(|c| c.number == task) {
                Some(child) if child.start_at.is_none() => {
                    rt::task_ctl(control(self.task, child.name), TaskOp::InjectFault);
                }
                Some(child) => rt::log!(Warn, "{} is stopped already", child.name),
                None => rt::log!(Warn, "there is no task {task}"),
            },
            Command::Status => self.print_status(),
            Command::Reboot => self.end_soon(End::Reboot, "rebooting"),
            Command::PowerOff => self.end_soon(End::PowerOff, "switching off"),
        }
    }

    fn end_soon(&mut self, end: End, words: &str) {
        rt::log::write(Level::Info, format_args!("{words}"));
        self.end = Some((rt::now_ns() + LAST_WORDS_NS, end));
    }

    fn end_when_due(&self) {
        match self.end {
            Some((at, End::Reboot)) if at <= rt::now_ns() => machine::reboot(),
            Some((at, End::PowerOff)) if at <= rt::now_ns() => machine::power_off(),
            _ => {}
        }
    }

    fn print_status(&self) {
        let ms = |ticks: u64| ticks as u128 * 1000 / machine::kernel_boot().ticks_per_second.max(1) as u128;
        for child in &self.children {
            let s: TaskStatus = rt::task_read(control(self.task, child.name));
            let state = match s.state {
                s if s == TaskState::Stopped as u32 => "stopped",
                s if s == TaskState::Ready as u32 => "ready",
                s if s == TaskState::Waiting as u32 => "waiting",
                s if s == TaskState::Faulted as u32 => "faulted",
                s if s == TaskState::Depleted as u32 => "out of budget",
                _ => "?",
            };
            rt::log!(
                Info,
                "{:>2} {:<12} {state:<8} life {} core {} cpu {} ms switches {}",
                child.number,
                child.name,
                s.epoch,
                s.core,
                ms(s.run_ticks),
                s.switches
            );
        }
    }
}
