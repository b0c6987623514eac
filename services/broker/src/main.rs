//! The broker's task: one link, to tls.
#![no_std]
#![no_main]

extern crate alloc;

use broker::{Config, Service};
use rt::Task;

rt::entry!(main);

fn main(task: Task) -> ! {
    let config: Config = task.config();
    if let Err(rule) = config.check() {
        panic!("configuration: {rule}");
    }
    let mut seed = [0; 8];
    rt::fill_random(&mut seed);
    let mut link = task.end("session");
    let mut service = Service::new(config, u64::from_ne_bytes(seed));
    loop {
        let deadline = service.drive(rt::now_ns(), &mut link.end);
        while let Some(event) = service.event() {
            rt::log::write(event.level(), format_args!("{event}"));
        }
        task.wait(&mut [&mut link], deadline);
    }
}
