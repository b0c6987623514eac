//! Signals and ring round trips between two tasks, to be counted from outside between two lines of the log.

use crate::memory::echo;
use crate::pause;
use ipc::ring::Desc;
use rt::{Bell, Link, Task};

const SIGNALS: u32 = 20_000;
const ROUND_TRIPS: u32 = 20_000;
/// The first signals of all are not counted.
const WARM_UP: u32 = 100;

/// Higher priority: a signal means a switch to it, and its wait the switch back.
pub fn pong(task: &Task) -> ! {
    let bit = echo(task).bit;
    for _ in 0..SIGNALS + WARM_UP {
        while rt::wait(1 << bit, ipc::abi::NEVER).0 == 0 {}
    }
    let mut link = link(task);
    loop {
        link.poll(true);
        while let Some(desc) = link.end.recv() {
            let _ = link.end.send(&desc);
        }
        task.wait(&mut [&mut link], u64::MAX);
    }
}

pub fn ping(task: &Task) -> ! {
    pause(task, 200);
    let signal = echo(task).signal;
    (0..WARM_UP).for_each(|_| rt::signal(signal));
    say(task, format_args!("bench signals: begin"));
    (0..SIGNALS).for_each(|_| rt::signal(signal));
    say(task, format_args!("bench signals: end {SIGNALS}"));

    let mut link = link(task);
    while !link.end.is_up() {
        link.poll(true);
        task.wait(&mut [&mut link], rt::now_ns() + 1_000_000);
    }
    round_trips(task, &mut link, WARM_UP);
    say(task, format_args!("bench ring: begin"));
    round_trips(task, &mut link, ROUND_TRIPS);
    say(task, format_args!("bench ring: end {ROUND_TRIPS}"));
    loop {
        task.wait(&mut [&mut link], u64::MAX);
    }
}

fn round_trips(task: &Task, link: &mut Link<Desc, Desc>, count: u32) {
    for number in 0..count {
        assert!(link.end.send(&Desc { kind: 1, conn: number, ..Desc::default() }));
        let answer = loop {
            task.wait(&mut [link as &mut dyn Bell], u64::MAX);
            if let Some(desc) = link.end.recv() {
                break desc;
            }
        };
        assert_eq!(answer.conn, number);
    }
}

fn link(task: &Task) -> Link<Desc, Desc> {
    task.end("echo")
}

/// A line, and time for it to be printed and for the reader to look at its counter.
fn say(task: &Task, text: core::fmt::Arguments) {
    rt::log::write(rt::Level::Info, text);
    pause(task, 300);
}
