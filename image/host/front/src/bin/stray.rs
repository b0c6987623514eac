//! A task that tries what it may not do, one thing a life; the tests put it in a service's place.
#![no_main]

use ipc::abi::{EPOCH_VADDR, INFO_VADDR};
use std::sync::atomic::{AtomicU32, Ordering};

rt::entry!(main);

fn main(task: rt::Task) -> ! {
    let me = task.info.header.task as usize;
    let life = word(EPOCH_VADDR + 4 * me as u64).load(Ordering::Relaxed);
    let link = task.info.links.first().expect("a link");
    match life {
        1 => drop(std::fs::File::open("/etc/passwd")),
        2 => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
        3 => drop(std::process::Command::new("/bin/true").status()),
        // The peer's half of a link, the epochs and the info page are there to be read.
        4 => word(link.theirs).store(1, Ordering::Relaxed),
        5 => word(EPOCH_VADDR).store(9, Ordering::Relaxed),
        6 => word(INFO_VADDR).store(9, Ordering::Relaxed),
        7 => drop(std::thread::spawn(|| ())),
        8 => panic!("on purpose"),
        _ => {
            rt::log!(Info, "stray: nothing is left to try");
            loop {
                task.wait(&mut [], u64::MAX);
            }
        }
    }
    rt::log!(Error, "stray: SURVIVED {life}");
    loop {
        task.wait(&mut [], u64::MAX);
    }
}

fn word(at: u64) -> &'static AtomicU32 {
    // SAFETY: mapped for reading at least; writing is what is tried, and ends this process.
    unsafe { &*(at as *const AtomicU32) }
}
