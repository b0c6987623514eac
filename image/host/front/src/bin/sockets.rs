//! The task that stands for nic and tcp where Linux's own TCP is used.
#![no_main]

use front::sockets::{Limits, Sockets};
use ipc::hosted::DEVICE_LISTENER;
use rt::Bell;

rt::entry!(main);

fn main(task: rt::Task) -> ! {
    let config: tcp::Config = task.config();
    let mut tls = task.end("stream");
    let limits = Limits {
        connections: config.max_connections,
        congested: config.congested as usize,
        drained: config.drained as usize,
        finish_ns: config.finish_timeout_s as u64 * 1_000_000_000,
    };
    let Some((DEVICE_LISTENER, listener)) = rt::device() else { panic!("no listening socket") };
    let mut sockets = match Sockets::new(limits, listener, rt::bell()) {
        Ok(sockets) => sockets,
        Err(error) => panic!("epoll: {error}"),
    };
    let mut was_up = false;
    loop {
        let more = sockets.drive(rt::now_ns(), &mut tls.end);
        if tls.end.is_up() && !was_up {
            rt::log!(Info, "urmqtt: ready, port {}, over Linux's TCP", config.port);
        }
        was_up = tls.end.is_up();
        let idle = task.settle(&mut [&mut tls as &mut dyn Bell]) && !more;
        if sockets.wait(rt::now_ns(), idle) {
            rt::wait(!0, 0);
        }
    }
}
