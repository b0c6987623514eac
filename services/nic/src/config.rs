//! What the builder tells the driver (postcard, in its info page).

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Most descriptors of each queue, a power of two up to 1024; the device's own limit counts too.
    pub queue_size: u16,
}

impl Default for Config {
    fn default() -> Self {
        Config { queue_size: 256 }
    }
}
