//! `urmqtt bench`: load on a broker, and brokers beside each other.

use anyhow::Result;

/// Put a broker under load, or compare brokers
///
/// Any MQTT 3.1.1 broker that wants TLS 1.3 and client certificates, with certificates as `urmqtt certs` makes them.
///
/// Example: urmqtt bench throughput --port 8883 --qos 1 --pids-of mosquitto
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: ::bench::command::Command,
}

pub fn run(args: &Args) -> Result<()> {
    args.command.run()
}
