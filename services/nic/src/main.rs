//! The driver's task: attach what the supervisor has described in the boot page, then drive and wait.
#![no_std]
#![no_main]

extern crate alloc;

use core::ptr::NonNull;
use ipc::boot::{Device, Window};
use nic::{Config, Driver, Memory};
use rt::{Bell, Region, Task};
use virtio::{DeviceFault, Queue, Registers, Transport, queue};

rt::entry!(main);

fn main(task: Task) -> ! {
    let Some(device) = task.boot().map(|b| b.device).filter(|d| d.present == 1) else {
        rt::log!(Error, "no network device");
        loop {
            task.wait(&mut [], u64::MAX);
        }
    };
    let Err(fault) = run(&task, &device);
    panic!("device fault: {fault:?}")
}

fn run(task: &Task, device: &Device) -> Result<core::convert::Infallible, DeviceFault> {
    let mut link = task.end("frame");
    let irq = task.cap("nic").expect("the manifest gives the driver its interrupt");
    let mut driver = attach(task, device)?;
    let mut bits = 0;
    loop {
        driver.drive(&mut link.end)?;
        // The wish for interrupts stands before the interrupt is unmasked; whatever came in between is seen here or signalled.
        if !driver.sleep()? {
            if let Some(signal) = link.flush() {
                rt::signal(signal);
            }
            continue;
        }
        if bits >> irq.bit & 1 == 1 {
            rt::irq_ack(irq.handle);
        }
        bits = task.wait(&mut [&mut link], u64::MAX);
    }
}

/// Where the structure lies in the mapped BAR, once it is seen to lie inside.
fn structure(bar: &Region, window: Window) -> NonNull<u8> {
    let end = window.offset as usize + window.len as usize;
    assert!(window.len > 0 && end <= bar.len, "a virtio structure lies outside of the BAR region");
    NonNull::new(bar.base.wrapping_add(window.offset as usize)).expect("mapped")
}

fn attach(task: &Task, device: &Device) -> Result<Driver<'static, Registers<'static>>, DeviceFault> {
    let bar = task.region("nic.bar").expect("region nic.bar");
    let queues = task.region("nic.queues").expect("region nic.queues");
    let phys = |name| device.dma(name).expect("the boot page names the DMA regions").phys;
    assert!(device.common.len as usize >= virtio::pci::COMMON_BYTES);
    // SAFETY: the structures lie in the BAR that is mapped for this task alone, and each is wrapped once; the supervisor has
    // checked their alignment.
    let mut registers = unsafe {
        Registers::new(
            structure(&bar, device.common),
            (structure(&bar, device.notify), device.notify.len as usize),
            (structure(&bar, device.config), device.config.len as usize),
            device.notify_multiplier,
        )
    };
    registers.reset()?;
    let size = queue_size(&mut registers, task.config::<Config>().queue_size)?;
    assert!(2 * queue::bytes(size) <= queues.len, "region nic.queues is too small");
    let make = |index: usize| {
        let (slots, free) =
            (alloc::vec![queue::Slot::default(); size as usize], alloc::vec![0; size as usize]);
        let offset = index * queue::bytes(size);
        // SAFETY: two disjoint parts of the region, which only this task maps; its base is page aligned.
        unsafe {
            Queue::new(queues.base.add(offset), phys("nic.queues") + offset as u64, slots.leak(), free.leak())
        }
    };
    let memory = Memory { received: phys("frame.a"), transmit: phys("frame.b"), vector: device.queue_vector };
    Driver::new(registers, make(0), make(1), memory)
}

/// The largest power of two that configuration and device allow.
fn queue_size(registers: &mut Registers, wanted: u16) -> Result<u16, DeviceFault> {
    let limit = registers.queue_limit(0).min(registers.queue_limit(1)).min(wanted).min(queue::MAX_SIZE);
    limit.checked_ilog2().map(|bits| 1 << bits).ok_or(DeviceFault::Queue)
}
