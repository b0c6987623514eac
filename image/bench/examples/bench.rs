//! The load generator alone, quicker to build than all of `urmqtt`: cargo run --release -p bench --example bench -- --help

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: bench::command::Command,
}

fn main() -> anyhow::Result<()> {
    Cli::parse().command.run()
}
