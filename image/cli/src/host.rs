//! `urmqtt host`: the task graph as Linux processes.

use crate::Arch;
use crate::build;
use anyhow::{Context, Result, bail};
use builder::package::{self, Request};
use host::{Device, Supervisor, System, Why};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

/// Run the tasks of an image as Linux processes, at the processor's own speed
///
/// Every service runs with its manifest's memory and signals and no other right. Ctrl-C ends all of it. In mode `tap` the whole
/// path of the image is used, in a network namespace of its own; in mode `sockets` Linux's TCP takes the place of the tasks nic
/// and tcp.
///
/// Example: urmqtt host --port 8883
/// Example: urmqtt host --mode tap -- mosquitto_pub --cafile certs/ca.crt ... -h 10.83.83.2
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[arg(long, value_enum, default_value_t = Mode::Sockets)]
    pub mode: Mode,
    /// Port on 127.0.0.1 (mode sockets), 0: any
    #[arg(long, default_value_t = 8883)]
    pub port: u16,
    /// The user's configuration; without it the defaults count
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of ca.crt, server.crt and server.key
    #[arg(long, default_value = "certs", env = "CERTS", value_name = "DIR")]
    pub certs: PathBuf,
    /// Folder of the tasks' programs, which `make host` builds
    #[arg(long, default_value = "out/host", value_name = "DIR")]
    pub programs: PathBuf,
    /// Obey commands on standard input (`help` lists them), log what development images log
    #[arg(long)]
    pub dev: bool,
    /// A command to run when the tasks are up, in their network namespace; its end is the end
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Linux's TCP on a port of 127.0.0.1
    Sockets,
    /// Our TCP on a TAP device
    Tap,
}

pub fn run(args: &Args) -> Result<()> {
    loop {
        match serve(args)? {
            Why::Asked => return Ok(()),
            Why::Reboot => eprintln!("rebooting"),
            Why::GaveUp(name) => bail!("{name} failed too often; its reasons are above"),
        }
    }
}

fn serve(args: &Args) -> Result<Why> {
    let (device, address) = match args.mode {
        Mode::Sockets => host::listener(SocketAddrV4::new(Ipv4Addr::LOCALHOST, args.port))?,
        Mode::Tap => (host::tap()?, SocketAddrV4::new(host::SERVED, args.port)),
    };
    let mut supervisor = Supervisor::start(system(args, device, address)?, args.dev)?;
    eprintln!("{}", banner(args, address));
    let mut command = match args.command.split_first() {
        Some((program, words)) => Some(
            std::process::Command::new(program)
                .args(words)
                .spawn()
                .with_context(|| format!("cannot start {program}"))?,
        ),
        None => None,
    };
    let why = supervisor.run(|| match &mut command {
        Some(child) => Ok(child.try_wait()?.is_some()),
        None => Ok(false),
    })?;
    if let Some(mut child) = command {
        let _ = (child.kill(), child.wait());
    }
    Ok(why)
}

fn banner(args: &Args, address: SocketAddrV4) -> String {
    match args.mode {
        Mode::Sockets => format!("hosted, mode sockets: Linux's TCP on {address}. Ctrl-C ends it."),
        Mode::Tap => format!(
            "hosted, mode tap: our TCP on {address}, in a network namespace; \
             `nsenter -t {} {}-n COMMAND` gets there. Ctrl-C ends it.",
            std::process::id(),
            if host::is_root() { "" } else { "-U --preserve-credentials " },
        ),
    }
}

/// Plan and settings as an image would have them, but for the network, which is the host's.
fn system(args: &Args, device: Device, address: SocketAddrV4) -> Result<System> {
    let (graph, driver) = match args.mode {
        Mode::Sockets => ("sockets", "tcp"),
        Mode::Tap => ("default", "nic"),
    };
    let (graph, text) = (build::system(graph)?, build::config(args.config.as_deref())?);
    let request = Request {
        arch: Arch::native().package(),
        system: &graph,
        config: &text,
        development: args.dev,
        artifacts: &args.programs,
        certs: &args.certs,
        command_line: "",
        maps: false,
    };
    let (mut plan, mut config) = package::plan(&request).map_err(build::explain)?;
    config.network.serve(*address.ip(), address.port());
    if let (Mode::Tap, Some(nic)) = (args.mode, plan.tasks.iter_mut().find(|t| t.name == driver)) {
        nic.program = "tap".parse().expect("a name");
    }
    if args.dev {
        println!("{} tasks, {} MiB of memory at most", plan.tasks.len(), plan.memory() >> 20);
    }
    let infos = package::infos(&request, &plan, &config).map_err(build::explain)?;
    for task in plan.tasks.iter().skip(1) {
        let program = args.programs.join(task.program.as_str());
        if !program.exists() {
            bail!("{} is missing; `make host` builds it", program.display());
        }
    }
    Ok(System { plan, infos, programs: args.programs.clone(), driver: driver.into(), device })
}
