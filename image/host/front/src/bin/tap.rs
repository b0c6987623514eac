//! The task that stands for nic: a TAP device.
#![no_main]

use front::tap::Tap;
use ipc::hosted::DEVICE_TAP;
use rt::Bell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

rt::entry!(main);

fn main(task: rt::Task) -> ! {
    let Some((DEVICE_TAP, device)) = rt::device() else { panic!("no TAP device") };
    let bell = rt::bell();
    let mut link = task.end("frame");
    let mut mac = [0; 6];
    rt::fill_random(&mut mac);
    // Locally administered, of one machine.
    mac[0] = mac[0] & !1 | 2;
    let mut tap = Tap::new(device, mac);
    loop {
        let more = tap.drive(&mut link.end);
        let idle = task.settle(&mut [&mut link as &mut dyn Bell]) && !more;
        // Without a buffer to receive into, the device can wait.
        let listens = link.end.is_up() && link.end.own.available() > 0;
        let asked = if listens { PollFlags::IN } else { PollFlags::empty() };
        let mut both = [PollFd::new(&bell, PollFlags::IN), PollFd::new(&device, asked)];
        let limit = (!idle).then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
        let _ = poll(&mut both, limit.as_ref());
        if both[0].revents().contains(PollFlags::IN) {
            rt::wait(!0, 0);
        }
    }
}
