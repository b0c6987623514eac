//! `urmqtt host`: the task graph as Linux processes.

use crate::Arch;
use crate::build;
use anyhow::{Context, Result, bail};
use builder::config::Config;
use builder::diagnostic::Source;
use builder::package::{self, Request};
use builder::plan::{Plan, Task};
use host::record::{Header, Request as Record};
use host::{Supervisor, System, Why};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// Run the tasks of an image as Linux processes, at the processor's own speed
///
/// Every service runs with its manifest's memory and signals and no other right. Ctrl-C ends all of it. In mode `tap` the whole
/// path of the image is used, in a network namespace of its own; in mode `sockets` Linux's TCP takes the place of the tasks nic
/// and tcp.
///
/// Example: urmqtt host --port 8883
/// Example: urmqtt host --record session --to session.jsonl
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
    /// Record what goes over a link ("session": tls and broker; "stream": tcp and tls; "frame": nic and tcp) for `urmqtt
    /// service --replay`; may be repeated
    #[arg(long, value_name = "LINK", help_heading = "Recording")]
    pub record: Vec<String>,
    /// Where the recording goes. It holds what clients send, passwords included, and no keys
    #[arg(
        long,
        value_name = "FILE",
        default_value = "recording.jsonl",
        requires = "record",
        help_heading = "Recording"
    )]
    pub to: PathBuf,
    /// MiB of the recording at most; the tasks run on without it
    #[arg(long, value_name = "MIB", default_value_t = 1024, requires = "record", help_heading = "Recording")]
    pub record_limit: u64,
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
    for life in 1.. {
        match serve(args, life)? {
            Why::Asked => break,
            Why::Reboot => eprintln!("rebooting"),
            Why::GaveUp(name) => bail!("{name} failed too often; its reasons are above"),
        }
    }
    Ok(())
}

/// Where the recording of a life goes: the first one's file isn't written over.
fn recording(path: &Path, life: u32) -> PathBuf {
    match life {
        1 => path.to_owned(),
        n => PathBuf::from(format!("{}.{n}", path.display())),
    }
}

fn serve(args: &Args, life: u32) -> Result<Why> {
    let (device, address) = match args.mode {
        Mode::Sockets => host::listener(SocketAddrV4::new(Ipv4Addr::LOCALHOST, args.port))?,
        Mode::Tap => (host::tap()?, SocketAddrV4::new(host::SERVED, args.port)),
    };
    let (graph, driver) = graph(args.mode);
    let config = build::config(args.config.as_deref())?;
    let record = (!args.record.is_empty()).then(|| Record {
        header: Header::new(graph, args.dev, &config.text, &args.record),
        path: recording(&args.to, life),
        limit: args.record_limit << 20,
    });
    let wanted = Wanted {
        graph,
        config: &config,
        development: args.dev,
        programs: &args.programs,
        certs: &args.certs,
    };
    let (mut plan, infos) =
        wanted.system(|settings| settings.network.serve(*address.ip(), address.port()))?;
    if let (Mode::Tap, Some(nic)) = (args.mode, plan.tasks.iter_mut().find(|t| t.name == driver)) {
        nic.program = "tap".parse().expect("a name");
    }
    plan.tasks.iter().skip(1).try_for_each(|task| check_program(task, &args.programs))?;
    if args.dev {
        println!("{} tasks, {} MiB of memory at most", plan.tasks.len(), plan.memory() >> 20);
    }
    let system =
        System { plan, infos, programs: args.programs.clone(), driver: driver.into(), device: Some(device) };
    let mut supervisor = Supervisor::start(system, args.dev, record)?;
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

/// The task graph of a mode, and which task drives the device.
pub fn graph(mode: Mode) -> (&'static str, &'static str) {
    match mode {
        Mode::Sockets => ("sockets", "tcp"),
        Mode::Tap => ("default", "nic"),
    }
}

/// A system to run hosted.
pub struct Wanted<'w> {
    pub graph: &'w str,
    pub config: &'w Source,
    pub development: bool,
    pub programs: &'w Path,
    pub certs: &'w Path,
}

impl Wanted<'_> {
    /// Plan and settings as an image would have them, after `change`.
    pub fn system(&self, change: impl FnOnce(&mut Config)) -> Result<(Plan, Vec<Vec<u8>>)> {
        let graph = build::system(self.graph)?;
        let request = Request {
            arch: Arch::native().package(),
            system: &graph,
            config: self.config,
            development: self.development,
            artifacts: self.programs,
            certs: self.certs,
            command_line: "",
            maps: false,
        };
        let (plan, mut config) = package::plan(&request).map_err(build::explain)?;
        change(&mut config);
        let infos = package::infos(&request, &plan, &config).map_err(build::explain)?;
        Ok((plan, infos))
    }
}

/// The task's program is there.
pub fn check_program(task: &Task, programs: &Path) -> Result<()> {
    let program = programs.join(task.program.as_str());
    if !program.exists() {
        bail!("{} is missing; `make host` builds it", program.display());
    }
    Ok(())
}
