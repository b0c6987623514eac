//! Each service's settings, from the user's configuration, as the bytes that the service reads.

use crate::config::Config;
use crate::plan::Plan;

/// Settings of task `i`. Tasks without settings get none.
pub fn config(_plan: &Plan, _i: usize, _config: &Config) -> Vec<u8> {
    Vec::new()
}
