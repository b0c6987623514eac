//! Task 0: the boot phase, then faults, restarts and commands.
#![no_std]
#![no_main]

extern crate alloc;

#[path = "bare/boot.rs"]
mod boot;
#[path = "bare/devices.rs"]
mod devices;
#[path = "bare/machine.rs"]
mod machine;
#[path = "bare/random.rs"]
mod random;
#[path = "bare/run.rs"]
mod run;

rt::entry!(main);

fn main(task: rt::Task) -> ! {
    let config: supervisor::Config = task.config();
    let seeds = boot::boot(&task, &config);
    run::run(&task, &config, seeds)
}
