//! What the fuzzers run: two tasks that log what they like, with right and wrong messages, one of which restarts; and typed keys.

use crate::command::{Editor, Request, parse};
use crate::{Config, Log, Serial};
use alloc::vec::Vec;
use ipc::link::End;
use ipc::link::console::{Level, Line, Written};
use ipc::testing::{HalfMemory, Kernel, PoolMemory, end};
use std::thread_local;

const TASKS: [u16; 2] = [1, 2];
const CONSOLE: u16 = 3;
const BUFFERS: u32 = 8;

#[derive(Clone, Copy)]
struct Memory {
    kernel: Kernel,
    halves: [[HalfMemory; 2]; 2],
    pools: [PoolMemory; 2],
    none: PoolMemory,
}

impl Memory {
    fn new() -> Self {
        let halves = || [HalfMemory::new(16), HalfMemory::new(16)];
        let pool = || PoolMemory::new(BUFFERS, 256);
        Memory {
            kernel: Kernel::default(),
            halves: [halves(), halves()],
            pools: [pool(), pool()],
            none: PoolMemory::new(0, 8),
        }
    }

    fn task(&self, i: usize) -> End<'static, Line, Written> {
        let ([mine, theirs], none) = (self.halves[i], self.none);
        end(&self.kernel, mine, theirs, (TASKS[i], CONSOLE), self.pools[i], none)
    }

    fn console(&self, i: usize) -> End<'static, Written, Line> {
        let ([theirs, mine], none) = (self.halves[i], self.none);
        end(&self.kernel, mine, theirs, (CONSOLE, TASKS[i]), none, self.pools[i])
    }
}

#[derive(Default)]
struct Terminal {
    keys: Vec<u8>,
    shown: Vec<u8>,
}

impl Serial for Terminal {
    fn write(&mut self, bytes: &[u8]) {
        self.shown.extend_from_slice(bytes);
    }
    fn read(&mut self) -> Option<u8> {
        self.keys.pop()
    }
}

/// Reads a script from `data` and plays it. Panics mean a bug; so does a byte on the terminal that could steer it, a line that is
/// too long, and a buffer that comes back though it isn't lent.
pub fn run(mut data: &[u8]) {
    thread_local!(static MEMORY: Memory = Memory::new());
    let memory = MEMORY.with(|m| *m);
    memory.halves.iter().flatten().for_each(HalfMemory::reset);
    let mut tasks = [0, 1].map(|i| memory.task(i));
    let mut consoles = [0, 1].map(|i| memory.console(i));
    let mut log = Log::new(Config { level: 3, ..Config::default() });
    let mut sources = [log.source("a"), log.source("b")];
    let (mut editor, mut terminal, mut now) = (Editor::default(), Terminal::default(), 0u64);
    while let Some(what) = data.split_off_first().copied() {
        let n = data.split_off_first().copied().unwrap_or(0);
        let i = (what >> 7) as usize;
        match what % 8 {
            0..=3 => say(&mut tasks[i], &mut data, n),
            4 => drop(tasks[i].send(&Line {
                level: Level::Error,
                buf: n as u32,
                len: n as u16 * 3,
                dropped: 1,
            })),
            5 => now += n as u64 * 100_000_000,
            6 => terminal.keys.extend(data.split_off(..(n as usize).min(data.len())).unwrap_or(&[])),
            _ if n < 32 => {
                memory.halves[i][0].reset();
                memory.kernel.restart(TASKS[i]);
                tasks[i] = memory.task(i);
            }
            _ => {}
        }
        for i in 0..2 {
            tasks[i].poll(true);
            let _ = tasks[i].flush();
            log.drain(&mut sources[i], &mut consoles[i], now, &mut terminal);
            let _ = consoles[i].flush();
            while let Some(Written { buf }) = tasks[i].recv() {
                // One that was lied about may be free.
                let _ = tasks[i].own.give_back(buf);
            }
        }
        while let Some(line) = editor.read(&mut terminal) {
            if let Some(Request::Wrong(text)) = parse(&line, [("a", 1), ("b", 2)].into_iter()) {
                log.write("console", format_args!("{text}"), now, &mut terminal);
            }
        }
        check(&terminal.shown);
        terminal.shown.clear();
    }
}

fn say(task: &mut End<'static, Line, Written>, data: &mut &[u8], n: u8) {
    let Some(buf) = task.own.take() else { return };
    let text = data.split_off(..(n as usize).min(data.len())).unwrap_or(&[]);
    task.own.bytes(buf)[..text.len()].copy_from_slice(text);
    task.own.lend(buf);
    let level = [Level::Error, Level::Warn, Level::Info, Level::Debug][n as usize % 4];
    task.send(&Line { level, buf, len: text.len() as u16, dropped: n as u16 % 3 });
}

fn check(shown: &[u8]) {
    let text = core::str::from_utf8(shown).expect("what is shown is UTF-8");
    let text = text.replace("\x08 \x08", "").replace("\r\n", "");
    assert!(!text.contains(char::is_control), "{text:?} steers the terminal");
    assert!(shown.split(|&b| b == b'\n').all(|line| line.len() < 4 * 512 + 100), "a line is too long");
}
