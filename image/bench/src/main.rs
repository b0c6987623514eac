//! `urmqtt-bench`, which `urmqtt bench` becomes: a program of its own, because it takes as long to build as all of the host command.

use clap::Parser;
use std::process::ExitCode;

/// Put a broker under load, or compare brokers
///
/// Any MQTT 3.1.1 broker that wants TLS 1.3 and client certificates, with certificates as `urmqtt certs` makes them.
///
/// Example: urmqtt bench throughput --port 8883 --qos 1 --pids-of mosquitto
#[derive(Parser)]
#[command(bin_name = "urmqtt bench", version, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    command: bench::command::Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
