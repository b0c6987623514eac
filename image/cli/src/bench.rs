//! `urmqtt bench`: load on a broker, and brokers beside each other. A program of its own beside this one (image/bench).

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

/// Put a broker under load, or compare brokers (`urmqtt bench --help`)
///
/// Example: urmqtt bench throughput --port 8883 --qos 1 --pids-of mosquitto
#[derive(clap::Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Args {
    /// What `urmqtt-bench` is told
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name("urmqtt-bench");
    let error = std::process::Command::new(&program).args(&args.words).exec();
    Err(error).with_context(|| format!("cannot start {}; `make bench-tool` builds it", program.display()))
}
