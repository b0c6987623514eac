//! The `urmqtt` command: builds, runs and inspects images on the host.

mod audit;
mod bench;
mod build;
mod certs;
mod forward;
mod host;
mod key;
mod kvm;
mod run;
mod service;
mod verify;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about = "Builds, runs and inspects urMQTT images", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Build(build::Args),
    Run(run::Args),
    Host(host::Args),
    Service(service::Args),
    #[command(hide = true)]
    Forward(forward::Args),
    Certs(certs::Args),
    Verify(verify::Args),
    Audit(audit::Args),
    Key(key::Args),
    Bench(bench::Args),
    /// Print completions for a shell
    ///
    /// Example: urmqtt completions bash > ~/.local/share/bash-completion/completions/urmqtt
    Completions {
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    ///
    /// Example: urmqtt man | man -l -
    Man,
}

/// Architecture of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

impl Arch {
    pub const fn native() -> Self {
        if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 }
    }

    pub const fn package(self) -> ipc::package::Arch {
        match self {
            Arch::X86_64 => ipc::package::Arch::X86_64,
            Arch::Aarch64 => ipc::package::Arch::Aarch64,
        }
    }

    pub const fn name(self) -> &'static str {
        self.package().name()
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Build(args) => build::run(&args),
        Command::Run(args) => run::run(args),
        Command::Host(args) => host::run(&args),
        Command::Service(args) => service::run(&args),
        Command::Forward(args) => forward::run(&args),
        Command::Certs(args) => certs::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "urmqtt", &mut std::io::stdout());
            Ok(())
        }
        Command::Man => {
            clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout()).map_err(Into::into)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Diagnostics bring their own layout; other errors are a line with their causes.
fn report(error: &anyhow::Error) {
    use std::io::IsTerminal;
    match error.downcast_ref::<builder::diagnostic::Diagnostics>() {
        Some(d) if std::io::stderr().is_terminal() => eprintln!("{}", d.styled()),
        Some(d) => eprintln!("{d}"),
        None => eprintln!("error: {error:#}"),
    }
}
