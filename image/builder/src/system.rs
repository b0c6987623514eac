//! The task graph as it stands in `image/systems/NAME.toml`.

use crate::value::{Count, Name, Number, Size};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The kernel's early console works even in production images (for tests of the kernel).
    #[serde(default)]
    pub early_log: bool,
    /// In order of their numbers; the first is the supervisor.
    #[serde(rename = "task")]
    pub tasks: Vec<Task>,
    #[serde(rename = "link", default)]
    pub links: Vec<Link>,
    #[serde(rename = "region", default)]
    pub regions: Vec<Region>,
    #[serde(rename = "irq", default)]
    pub irqs: Vec<Irq>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    pub name: Spanned<Name>,
    /// Artifact with the task's code; default: the task's name.
    pub program: Option<Name>,
    /// Which service's settings the task gets; default: the program's.
    pub config: Option<Spanned<Name>>,
    /// 31 is the most urgent.
    pub priority: Number<0, 31>,
    /// On a machine with fewer cores, `core % cores`.
    #[serde(default = "zero")]
    pub core: Number<0, 63>,
    /// Microseconds that the task may run in each period; both or neither.
    pub budget_us: Option<Spanned<Number<1, 1_000_000>>>,
    pub period_us: Option<Spanned<Number<1, 1_000_000>>>,
    pub stack: Size<4096, { 16 << 20 }>,
    pub heap: Size<4096, { 1 << 30 }>,
    /// Bytes on top of `heap` for each unit of one of the user's `[limits]`.
    #[serde(default)]
    pub heap_per: BTreeMap<Spanned<String>, Size<0, 65536>>,
    #[serde(default = "yes")]
    pub simd: bool,
    /// x86: the ports of COM1.
    #[serde(default)]
    pub serial: bool,
    /// Tasks that this one may stop and start; `"*"`: all others.
    #[serde(default)]
    pub controls: Vec<Spanned<String>>,
    #[serde(default)]
    pub restart: Restart,
}

/// What the supervisor does when a task has stopped.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restart {
    /// Milliseconds before the first restart; doubled at each further one within `window_s`.
    pub delay_ms: Number<0, 60_000>,
    pub max_delay_ms: Number<0, 600_000>,
    /// Restarts within `window_s` seconds after which the machine reboots.
    pub limit: Number<1, 1000>,
    pub window_s: Number<1, 86_400>,
}

impl Default for Restart {
    fn default() -> Self {
        Restart {
            delay_ms: Number::new(0),
            max_delay_ms: Number::new(2000),
            limit: Number::new(16),
            window_s: Number::new(60),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub name: Spanned<Name>,
    /// Side A: a task, or `"*"`: one link from each task but side B, which there is named `NAME.TASK`.
    pub a: Spanned<String>,
    pub b: Spanned<String>,
    /// Messages about connections pass: rings have room for those of all connections at once.
    #[serde(default)]
    pub connections: bool,
    /// Elements of each ring; default: room for all buffers and all connections.
    pub capacity: Option<Spanned<Number<2, 1048576>>>,
    pub pool_a: Option<Spanned<Pool>>,
    pub pool_b: Option<Spanned<Pool>>,
}

/// Buffers that one side of the link writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// How many: a number, or a setting in the user's `[pools]`.
    pub buffers: Option<Spanned<Count>>,
    /// Bytes of a buffer, a power of two.
    pub size: Option<Spanned<Size<64, 65536>>>,
    /// A device reads or writes it.
    #[serde(default)]
    pub dma: bool,
    /// Not a pool of this link's own, but another's, as `LINK.a` or `LINK.b`: passed on, and readable for the other side.
    pub of: Option<Spanned<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegionKind {
    Ram,
    /// Physically contiguous.
    Dma,
    /// Bound to a device's registers by the supervisor.
    Device,
    /// Bound to a firmware's table by the supervisor.
    Firmware,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Rights {
    #[serde(rename = "r")]
    Read,
    #[serde(rename = "rw")]
    Write,
}

/// Memory beside the links.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    pub name: Spanned<Name>,
    pub kind: RegionKind,
    pub size: Size<1, { 1 << 32 }>,
    /// Who may read, who may write (one task at most).
    pub tasks: BTreeMap<Spanned<String>, Spanned<Rights>>,
    /// Unmapped for ever when the system is sealed.
    #[serde(default)]
    pub boot_only: bool,
    /// Zeroed when the task that writes it restarts.
    #[serde(default)]
    pub reset: bool,
    /// Fixed virtual address; default: the next free one.
    pub at: Option<Spanned<u64>>,
}

/// An interrupt: the supervisor binds it to a device, the task gets it as a signal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Irq {
    pub name: Spanned<Name>,
    pub task: Spanned<String>,
}

fn zero() -> Number<0, 63> {
    Number::new(0)
}

fn yes() -> bool {
    true
}
