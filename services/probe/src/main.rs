//! One program, four tasks; the task's name says which.
#![no_std]
#![no_main]

extern crate alloc;

#[path = "bare/call.rs"]
mod call;
#[path = "bare/measure.rs"]
mod measure;
#[path = "bare/memory.rs"]
mod memory;
#[path = "bare/misdeed.rs"]
mod misdeed;
#[path = "bare/processor.rs"]
mod processor;
#[path = "bare/victim.rs"]
mod victim;

use ipc::manifest;
use rt::Task;

rt::entry!(main);

fn main(task: Task) -> ! {
    match manifest::name(&task.info.header.name) {
        "probe" => misdeed::try_next(&task),
        "victim" => victim::run(&task),
        "ping" => measure::ping(&task),
        "pong" => measure::pong(&task),
        other => panic!("the probe has no role {other}"),
    }
}

/// Lets other tasks run, the console among them, so that what was logged is printed.
fn pause(task: &Task, ms: u64) {
    let end = rt::now_ns() + ms * 1_000_000;
    while rt::now_ns() < end {
        task.wait(&mut [], end);
    }
}
