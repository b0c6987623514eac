//! The tcp task.
#![no_std]
#![no_main]
#![forbid(unsafe_op_in_unsafe_fn)]

use ipc::link::{frame, stream};
use tcp::{Config, Event, Service};

rt::entry!(main);

fn main(task: rt::Task) -> ! {
    let config: Config = task.config();
    let mut nic = task.end::<frame::Down, frame::Up>("frame");
    let mut tls = task.end::<stream::Up<stream::PeerAddress>, stream::Down>("stream");
    let mut seed = [0; 32];
    rt::fill_random(&mut seed);
    let (frames, ciphertext) = (nic.end.theirs.buffers(), tls.end.theirs.buffers());
    let mut service = Service::new(config, frames, ciphertext, &seed);
    loop {
        let deadline = service.drive(rt::now_ns(), &mut nic.end, &mut tls.end);
        while let Some(event) = service.event() {
            match event {
                Event::Fault { .. } | Event::LeaseLost => rt::log!(Warn, "{event}"),
                _ => rt::log!(Info, "{event}"),
            }
        }
        task.wait(&mut [&mut nic, &mut tls], deadline);
    }
}
