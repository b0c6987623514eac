//! What the builder tells the console (postcard, in its info page).

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Commands are read from the serial line.
    pub commands: bool,
    /// Lines above this level (`ipc::link::console::Level`: 0 errors, 1 warnings, 2 information, 3 debugging) are left out.
    pub level: u8,
    /// Lines a second that one task may write on average, and at once.
    pub lines_per_second: u32,
    pub burst: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { commands: false, level: 2, lines_per_second: 50, burst: 200 }
    }
}
