//! PCI functions by their configuration space (PCI Local Bus 3.0, section 6; PCI Express 5.0, section 7).
//!
//! A device can answer whatever it likes: lists are bounded, sizes are checked, and of an address only what the kernel allows
//! to be mapped counts in the end.

use crate::platform::{PciHost, Window};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

impl Function {
    /// As the function names itself in its messages.
    pub fn requester_id(self) -> u16 {
        (self.bus as u16) << 8 | (self.device as u16) << 3 | self.function as u16
    }
}

impl core::fmt::Display for Function {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus, self.device, self.function)
    }
}

/// Access to configuration space; `offset` is below 256 and a multiple of 4.
pub trait ConfigSpace {
    /// All ones where there is nothing.
    fn read(&mut self, function: Function, offset: u8) -> u32;
    fn write(&mut self, function: Function, offset: u8, value: u32);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub function: Function,
    pub vendor: u16,
    pub device: u16,
    pub subsystem: u16,
    pub bridge: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub index: u8,
    pub wide: bool,
    /// As the bus sees it; 0: not placed.
    pub address: u64,
    pub len: u64,
}

/// Most functions that are looked at.
const MAX_FUNCTIONS: usize = 256;
const NOTHING: u32 = u32::MAX;

const COMMAND: u8 = 0x04;
const COMMAND_MEMORY: u32 = 2;
const COMMAND_BUS_MASTER: u32 = 4;
const COMMAND_INTX_OFF: u32 = 1 << 10;
const STATUS_CAPABILITIES: u32 = 1 << 20;
const BARS: u8 = 0x10;
const CAPABILITIES: u8 = 0x34;

/// All functions, buses behind bridges that the firmware has numbered included.
pub fn enumerate(space: &mut impl ConfigSpace, host: &PciHost) -> Vec<Found> {
    let mut found = Vec::new();
    let mut buses = alloc::vec![host.first_bus];
    let mut next = 0;
    while let Some(&bus) = buses.get(next) {
        next += 1;
        for (device, function) in (0..32).flat_map(|d| (0..8).map(move |f| (d, f))) {
            let at = Function { bus, device, function };
            // Function 0 says whether there are others (bit 7 of the header type).
            if function > 0 && space.read(Function { function: 0, ..at }, 0x0c) >> 16 & 0x80 == 0 {
                continue;
            }
            let Some(one) = look(space, at) else { continue };
            if one.bridge {
                let secondary = (space.read(at, 0x18) >> 8) as u8;
                if secondary > bus && secondary <= host.last_bus && !buses.contains(&secondary) {
                    buses.push(secondary);
                }
            }
            found.push(one);
            if found.len() == MAX_FUNCTIONS {
                return found;
            }
        }
    }
    found
}

fn look(space: &mut impl ConfigSpace, function: Function) -> Option<Found> {
    let id = space.read(function, 0);
    if id == NOTHING || id as u16 == 0xffff {
        return None;
    }
    let bridge = space.read(function, 0x0c) >> 16 & 0x7f == 1;
    let subsystem = (space.read(function, 0x2c) >> 16) as u16;
    Some(Found { function, vendor: id as u16, device: (id >> 16) as u16, subsystem, bridge })
}

/// A capability: where it lies, its identifier, and the upper half of its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    pub offset: u8,
    pub id: u8,
    pub upper: u16,
}

/// The capability list; cut at 48 entries, which is all that 192 bytes can hold.
pub fn capabilities(space: &mut impl ConfigSpace, function: Function) -> Vec<Capability> {
    let mut list = Vec::new();
    if space.read(function, COMMAND) & STATUS_CAPABILITIES == 0 {
        return list;
    }
    let mut offset = space.read(function, CAPABILITIES) as u8 & !3;
    while offset >= 0x40 && list.len() < 48 {
        let word = space.read(function, offset);
        list.push(Capability { offset, id: word as u8, upper: (word >> 16) as u16 });
        offset = (word >> 8) as u8 & !3;
    }
    list
}

/// The memory BARs of an ordinary function, sized by writing ones; decoding is off meanwhile.
pub fn bars(space: &mut impl ConfigSpace, function: Function) -> Vec<Bar> {
    let command = space.read(function, COMMAND) & 0xffff;
    space.write(function, COMMAND, command & !3);
    let mut bars = Vec::new();
    let mut index = 0;
    while index < 6 {
        let register = BARS + 4 * index;
        let low = space.read(function, register);
        let wide = low & 7 == 4 && index < 5;
        let mut size = |register| {
            let value = space.read(function, register);
            space.write(function, register, u32::MAX);
            let mask = space.read(function, register);
            space.write(function, register, value);
            (value, mask)
        };
        let (_, low_mask) = size(register);
        let (high, high_mask) = if wide { size(register + 4) } else { (0, u32::MAX) };
        let mask = (high_mask as u64) << 32 | (low_mask & !0xf) as u64;
        let len = mask.wrapping_neg();
        // Memory, and of a size that is a power of two.
        if low & 1 == 0 && low_mask != 0 && len.is_power_of_two() {
            let address = (high as u64) << 32 | (low & !0xf) as u64;
            bars.push(Bar { index, wide, address, len });
        }
        index += if wide { 2 } else { 1 };
    }
    space.write(function, COMMAND, command);
    bars
}

/// Decodes memory, masters the bus, and sends no pin interrupts.
pub fn enable(space: &mut impl ConfigSpace, function: Function) {
    let command = space.read(function, COMMAND) & 0xffff;
    let on = COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_INTX_OFF;
    space.write(function, COMMAND, command | on);
}

/// Stops the function's own memory accesses.
pub fn disable(space: &mut impl ConfigSpace, function: Function) {
    let command = space.read(function, COMMAND) & 0xffff;
    space.write(function, COMMAND, command & !COMMAND_BUS_MASTER);
}

/// Places BARs that the firmware has not placed, in the host bridge's windows.
#[derive(Debug)]
pub struct Placer {
    windows: Vec<Window>,
    /// First free bus address in each window.
    next: Vec<u64>,
}

/// A BAR that lies nowhere, and no window has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl Placer {
    /// Whatever the firmware has placed in a window pushes the start of the free part behind it.
    pub fn new(space: &mut impl ConfigSpace, host: &PciHost, found: &[Found]) -> Self {
        let windows = host.windows.clone();
        let mut next: Vec<u64> = windows.iter().map(|w| w.bus).collect();
        for one in found.iter().filter(|f| !f.bridge) {
            if space.read(one.function, COMMAND) & COMMAND_MEMORY == 0 {
                continue;
            }
            for bar in bars(space, one.function) {
                for (window, next) in windows.iter().zip(&mut next) {
                    if bar.address >= window.bus && bar.address - window.bus < window.len {
                        *next = (*next).max(bar.address.saturating_add(bar.len));
                    }
                }
            }
        }
        Placer { windows, next }
    }

    /// The function's memory BARs by physical address, each of them placed.
    pub fn place(&mut self, space: &mut impl ConfigSpace, function: Function) -> Result<Vec<Bar>, NoRoom> {
        // Where no window is known (ACPI says them in AML only), the firmware has placed all, even if it has switched the
        // functions off again that it didn't need.
        let firmwares = space.read(function, COMMAND) & COMMAND_MEMORY != 0 || self.windows.is_empty();
        let mut placed = bars(space, function);
        for bar in &mut placed {
            if !firmwares || bar.address == 0 {
                bar.address = self.allocate(bar.wide, bar.len).ok_or(NoRoom)?;
                space.write(function, BARS + 4 * bar.index, bar.address as u32);
                if bar.wide {
                    space.write(function, BARS + 4 * bar.index + 4, (bar.address >> 32) as u32);
                }
            }
            bar.address = self.physical(bar.address);
        }
        Ok(placed)
    }

    fn allocate(&mut self, wide: bool, len: u64) -> Option<u64> {
        // Whole pages, so that no two functions share one.
        let len = len.max(ipc::abi::PAGE as u64);
        for (window, next) in self.windows.iter().zip(&mut self.next) {
            // Address 0 would read as "not placed".
            let at = (*next).max(1).checked_next_multiple_of(len)?;
            let Some(end) = at.checked_add(len) else { continue };
            let reachable = wide || end <= 1 << 32;
            if reachable && end <= window.bus.saturating_add(window.len) {
                *next = end;
                return Some(at);
            }
        }
        None
    }

    /// Bus to physical; one to one where no window says otherwise.
    fn physical(&self, bus: u64) -> u64 {
        let window = self.windows.iter().find(|w| bus >= w.bus && bus - w.bus < w.len);
        window.map_or(bus, |w| w.phys.saturating_add(bus - w.bus))
    }
}
