//! The console's task.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use console::command::{Editor, HELP, Request, parse};
use console::{Config, Log, Serial, Source};
use ipc::link::console::{self as link, Command, Written};
use ipc::manifest;
use ipc::ring::Desc;
use rt::{Bell, Link, Task};

rt::entry!(main);

/// How often typed characters are looked for.
const POLL_NS: u64 = 50_000_000;

/// The platform's serial line.
struct Line(rt::Serial);

impl Serial for Line {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn read(&mut self) -> Option<u8> {
        self.0.read()
    }
}

struct Talker {
    number: u16,
    source: Source,
    link: Link<Written, link::Line>,
}

fn main(task: Task) -> ! {
    let config: Config = task.config();
    let mut serial = Line(rt::Serial::new(&task));
    let mut log = Log::new(config);
    let names = || task.link_names().filter_map(|link| Some((link, link.strip_prefix("log.")?)));
    let mut tasks: Vec<Talker> = names()
        .map(|(link, name)| {
            let link: Link<Written, link::Line> = task.end(link);
            Talker { number: link.end.port.peer(), source: log.source(name), link }
        })
        .collect();
    // The console itself can be killed too.
    let me = &task.info.header;
    let others = names().map(|(_, name)| name).zip(tasks.iter().map(|t| t.number));
    let numbers: Vec<(&str, u16)> = others.chain([(manifest::name(&me.name), me.task)]).collect();
    let has_commands = config.commands && task.link_names().any(|name| name == "command");
    let mut commands: Option<Link<Command, Desc>> = has_commands.then(|| task.end("command"));
    let mut editor = Editor::default();
    loop {
        let now = rt::now_ns();
        for t in &mut tasks {
            log.drain(&mut t.source, &mut t.link.end, now, &mut serial);
        }
        if let Some(commands) = &mut commands {
            commands.poll(true);
            while let Some(line) = editor.read(&mut serial) {
                let answer = match parse(&line, numbers.iter().copied()) {
                    Some(Request::Command(command)) if !commands.end.send(&command) => {
                        Some("the supervisor takes no commands now".into())
                    }
                    Some(Request::Help) => Some(HELP.into()),
                    Some(Request::Wrong(text)) => Some(text),
                    Some(Request::Command(_)) | None => None,
                };
                if let Some(text) = answer {
                    log.write("console", format_args!("{text}"), rt::now_ns(), &mut serial);
                }
            }
        }
        let deadline = if commands.is_some() { now.saturating_add(POLL_NS) } else { u64::MAX };
        let mut links: Vec<&mut dyn Bell> = tasks.iter_mut().map(|t| &mut t.link as &mut dyn Bell).collect();
        links.extend(commands.as_mut().map(|link| link as &mut dyn Bell));
        task.wait(&mut links, deadline);
    }
}
