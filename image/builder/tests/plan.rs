//! What the checked-in task graphs and the documented defaults give.

use builder::check;
use builder::config::Config;
use builder::diagnostic::Source;
use builder::package::{self, Request};
use builder::plan::{Plan, Region};
use builder::tables;
use ipc::abi::{HEAP_VADDR, PAGE, REGION_VADDR};
use ipc::manifest::{DEVELOPMENT, MAPS};
use std::path::Path;

fn image(path: &str) -> Source {
    Source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

fn plan(system: &str) -> Plan {
    let source = image(&format!("systems/{system}.toml"));
    let read = || check::plan(&source, &source.parse()?, &Config::default());
    read().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn documented_defaults_are_the_defaults() {
    let documented = Config::parse(&image("urmqtt.toml")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(documented, Config::default());
}

#[test]
fn the_default_system_fits_a_small_machine() {
    let memory = plan("default").memory();
    assert!(memory < 192 << 20, "{} MiB", memory >> 20);
}

#[test]
fn every_system_in_the_folder_is_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systems");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let plan = plan(path.file_stem().unwrap().to_str().unwrap());
        no_overlaps(&plan);
        one_writer(&plan);
        links_are_symmetric(&plan);
    }
}

fn no_overlaps(plan: &Plan) {
    let mut regions: Vec<&Region> = plan.regions.iter().collect();
    regions.sort_by_key(|r| r.vaddr);
    let end = |r: &Region| r.vaddr + r.pages as u64 * PAGE as u64;
    for pair in regions.windows(2) {
        assert!(
            end(pair[0]) + PAGE as u64 <= pair[1].vaddr,
            "no guard between {} and {}",
            pair[0].name,
            pair[1].name
        );
    }
    assert!(regions.iter().all(|r| r.vaddr >= REGION_VADDR && end(r) < HEAP_VADDR));
}

fn one_writer(plan: &Plan) {
    for (n, region) in plan.regions.iter().enumerate() {
        let writers: Vec<usize> = plan
            .tasks
            .iter()
            .enumerate()
            .filter(|(_, t)| t.maps.iter().any(|m| m.region == n && m.write))
            .map(|(i, _)| i)
            .collect();
        assert!(writers.len() <= 1, "{} has writers {writers:?}", region.name);
        assert!(writers.iter().all(|&w| w == region.owner as usize), "{}", region.name);
    }
}

/// A task's signal sets the bit that its peer waits for, and a restart is told to both.
fn links_are_symmetric(plan: &Plan) {
    for (number, link) in plan.links.iter().enumerate() {
        let ends = link.tasks.map(|task| {
            let found = plan.tasks[task as usize].ends.iter().find(|e| e.link == number);
            *found.expect("each side has its end")
        });
        for side in 0..2 {
            let (me, peer) = (link.tasks[side], link.tasks[1 - side]);
            let cap = &plan.tasks[me as usize].caps[ends[side].signal as usize].cap;
            assert_eq!((cap.object, cap.bit), (peer, ends[1 - side].bit));
            assert!(plan.tasks[me as usize].neighbours >> peer & 1 == 1);
        }
    }
}

#[test]
fn tls_reads_the_frames_and_writes_none() {
    let plan = plan("default");
    let frames = plan.regions.iter().position(|r| r.name == "frame.a").unwrap();
    let rights = |task: &str| {
        let task = &plan.tasks[plan.task(task).unwrap() as usize];
        task.maps.iter().find(|m| m.region == frames).map(|m| m.write)
    };
    assert_eq!(rights("nic"), Some(true));
    assert_eq!(rights("tcp"), Some(false));
    assert_eq!(rights("tls"), Some(false));
    assert_eq!(rights("broker"), None);
}

#[test]
fn only_a_development_image_prints_its_mappings() {
    let (system, config) = (image("systems/default.toml"), image("urmqtt.toml"));
    let flags = |development, maps| {
        let request = Request {
            arch: ipc::package::Arch::X86_64,
            system: &system,
            config: &config,
            development,
            maps,
            artifacts: Path::new(""),
            certs: Path::new(""),
            command_line: "",
        };
        package::plan(&request).map(|(plan, config)| tables::flags(&plan, config.development))
    };
    assert!(matches!(flags(false, true), Err(package::Error::Maps)));
    assert_eq!(flags(true, true).unwrap() & (MAPS | DEVELOPMENT), MAPS | DEVELOPMENT);
    assert_eq!(flags(true, false).unwrap() & MAPS, 0);
    assert_eq!(flags(false, false).unwrap() & MAPS, 0);
}
