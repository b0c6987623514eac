//! One file an error: `fixtures/system/*.toml` are task graphs, `fixtures/config/*.toml` configurations; beside each stands the
//! message that it must give. `BLESS=1 cargo test -p builder` writes the messages anew.

use builder::check;
use builder::config::Config;
use builder::diagnostic::{Diagnostics, Source};
use builder::system::System;
use std::path::Path;

fn each(kind: &str, parse: impl Fn(&Source) -> Result<(), Diagnostics>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    assert!(paths.len() > 10, "the fixtures are gone");
    let mut wrong = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        let errors = parse(&Source::new(&name, &text)).expect_err(&format!("{name} is accepted"));
        for error in &errors.0 {
            assert!(!error.key.is_empty() || name.starts_with("syntax"), "{name}: no key");
        }
        let message = format!("{errors}\n");
        let expected = path.with_extension("expected");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&expected, &message).unwrap();
        }
        if std::fs::read_to_string(&expected).unwrap_or_default() != message {
            wrong.push(format!("{name}:\n{message}"));
        }
    }
    assert!(wrong.is_empty(), "unexpected messages:\n{}", wrong.join("\n"));
}

#[test]
fn every_mistake_in_a_task_graph_is_named() {
    let config = Config::default();
    each("system", |source| check::plan(source, &source.parse::<System>()?, &config).map(|_| ()));
}

#[test]
fn every_mistake_in_a_configuration_is_named() {
    each("config", |source| Config::parse(source).map(|_| ()));
}
