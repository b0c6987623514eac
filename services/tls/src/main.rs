//! The TLS task: attach to tcp and the broker, then drive and wait.
#![no_std]
#![no_main]

extern crate alloc;

mod crypto;

use ipc::ring::LinkFault;
use rt::{Link, Task};
use tls::{Config, Service};

rt::entry!(main);

fn main(task: Task) -> ! {
    let mut stream = task.end("stream");
    let mut session = task.end("session");
    let config: Config = task.config();
    let (frames, outgoing) = (stream.end.theirs.buffers(), session.end.theirs.buffers());
    let mut service = match Service::new(&config, frames, outgoing) {
        Ok(service) => service,
        Err(e) => panic!("configuration: {e}"),
    };
    drop(config);
    let mut faults = [None; 2];
    loop {
        let next = service.drive(rt::now_ns(), rt::wall_seconds(), &mut stream.end, &mut session.end);
        while let Some(refusal) = service.refusal() {
            rt::log!(Info, "{refusal}");
        }
        report(&mut faults[0], "tcp", &stream);
        report(&mut faults[1], "broker", &session);
        task.wait(&mut [&mut stream, &mut session], next);
    }
}

/// Logs once that a neighbour broke its link's rules; the link stays down until the neighbour restarts.
fn report<Out: ipc::ring::Message, In: ipc::ring::Message>(
    seen: &mut Option<LinkFault>,
    neighbour: &str,
    link: &Link<Out, In>,
) {
    let fault = link.end.port.fault();
    if let (Some(fault), true) = (fault, fault != *seen) {
        rt::log!(Error, "{neighbour} broke the rules of its link: {fault:?}");
    }
    *seen = fault;
}
