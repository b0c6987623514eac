//! What the builder tells the supervisor (postcard, in its info page).

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Commands of the console are obeyed, addresses are logged, and weak entropy is a warning.
    pub development: bool,
    /// By task number; entry 0, the supervisor itself, is not used.
    pub tasks: Vec<Task>,
    /// All regions of kinds `Dma`, `Device` and `Firmware`, whoever maps them; a link's pools are named `LINK.a`, `LINK.b`.
    pub regions: Vec<Region>,
    pub irqs: Vec<Irq>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub name: String,
    pub restart: Restart,
}

/// What is done when a task has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Milliseconds before the first restart; doubled at each further one within the window.
    pub delay_ms: u32,
    pub max_delay_ms: u32,
    /// Restarts within `window_s` seconds after which the machine reboots.
    pub limit: u32,
    pub window_s: u32,
}

impl Default for Restart {
    fn default() -> Self {
        Restart { delay_ms: 0, max_delay_ms: 2000, limit: 16, window_s: 60 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    pub name: String,
    /// In the system manifest.
    pub index: u32,
    pub pages: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    pub name: String,
    /// In the system manifest.
    pub index: u32,
}

impl Config {
    pub fn region(&self, name: &str) -> Option<&Region> {
        self.regions.iter().find(|r| r.name == name)
    }

    pub fn irq(&self, name: &str) -> Option<u32> {
        self.irqs.iter().find(|i| i.name == name).map(|i| i.index)
    }
}
