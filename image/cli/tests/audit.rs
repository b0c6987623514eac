//! `urmqtt audit` as a whole, without an image: what it says of the default task graph.

use cyclonedx_bom::models::bom::{Bom, SpecVersion};
use cyclonedx_bom::validation::Validate;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs it at the root of the workspace; what it prints.
fn audit(words: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_urmqtt"));
    let output = command.arg("audit").args(words).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&audit(&[words, &["--json"]].concat())).unwrap()
}

/// A folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn texts<'v>(of: &'v Value, key: &'v str) -> impl Iterator<Item = &'v str> {
    of.as_array().unwrap().iter().map(move |v| v[key].as_str().unwrap())
}

/// A parser that is named and gone would have been an error. Here: nothing that a neighbour or a device writes is without one.
#[test]
fn every_link_and_device_has_its_parser() {
    for system in ["default", "boot", "probe", "pingpong"] {
        if !Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../systems/{system}.toml")).exists() {
            continue;
        }
        for service in json(&["--system", system])["services"].as_array().unwrap() {
            let concerns = |name: &str| {
                texts(&service["inputs"], "on")
                    .any(|on| on == name || on.strip_suffix('*').is_some_and(|start| name.starts_with(start)))
            };
            let devices = service["regions"].as_array().unwrap().iter();
            let devices = devices.filter(|r| r["kind"] != "ram").map(|r| r["name"].as_str().unwrap());
            for name in texts(&service["links"], "name").chain(devices) {
                assert!(concerns(name), "{system}: {} has no parser for {name}", service["name"]);
            }
        }
    }
}

#[test]
fn parsers_are_where_the_report_says() {
    let report = json(&[]);
    let mut seen = 0;
    for input in report["services"].as_array().unwrap().iter().flat_map(|s| s["inputs"].as_array().unwrap()) {
        let (file, line) = input["at"].as_str().unwrap().rsplit_once(':').unwrap();
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap();
        let function = input["parser"].as_str().unwrap().rsplit("::").next().unwrap();
        let line = text.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap();
        assert!(line.contains(&format!("fn {function}")), "{input}");
        seen += 1;
    }
    assert!(seen > 20);
}

#[test]
fn services_have_lines_licences_and_limits() {
    let report = json(&["tls"]);
    let [tls] = &report["services"].as_array().unwrap()[..] else { panic!("one service") };
    assert!(tls["stack_bytes"].as_u64().unwrap() > 0 && tls["heap_bytes"].as_u64().unwrap() > 0);
    for c in tls["dependencies"].as_array().unwrap() {
        assert!(c["license"].is_string() && c["lines"].as_u64().is_some(), "{c}");
        assert!(c["own"] == true || c["sha256"].as_str().is_some_and(|s| s.len() == 64), "{c}");
    }
    assert!(texts(&tls["dependencies"], "name").any(|name| name == "rustls"));
}

#[test]
fn bills_of_materials_keep_the_rules_of_cyclonedx() {
    let folder = folder("sbom");
    audit(&["--sbom", folder.to_str().unwrap()]);
    let names = ["urmqtt", "supervisor", "nic", "tcp", "tls", "broker", "console"];
    for name in names {
        let path = folder.join(format!("{name}-x86_64.cdx.json"));
        let text = std::fs::read(&path).unwrap();
        let bom = Bom::parse_from_json_v1_5(&*text).unwrap();
        let validation = bom.validate_version(SpecVersion::V1_5);
        assert!(validation.passed(), "{name}: {validation:?}");
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["specVersion"], "1.5");
        // Every reference leads to a component.
        let components = value["components"].as_array().unwrap();
        let mut known: Vec<&str> = components.iter().map(|c| c["bom-ref"].as_str().unwrap()).collect();
        known.push(value["metadata"]["component"]["bom-ref"].as_str().unwrap());
        for edge in value["dependencies"].as_array().unwrap() {
            assert!(known.contains(&edge["ref"].as_str().unwrap()), "{name}: {edge}");
            for used in edge["dependsOn"].as_array().into_iter().flatten() {
                assert!(known.contains(&used.as_str().unwrap()), "{name}: {used}");
            }
        }
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), names.len());
}

#[test]
fn the_page_needs_nothing_else() {
    let page = folder("html").join("audit.html");
    audit(&["--html", page.to_str().unwrap()]);
    let text = std::fs::read_to_string(page).unwrap();
    for word in ["src=", "<link", "@import", "url(http", "<script", "href=\"http"] {
        assert!(!text.contains(word), "{word}");
    }
    for service in ["supervisor", "nic", "tcp", "tls", "broker", "console"] {
        assert!(text.contains(&format!("<h2 id=\"{service}\">")), "{service}");
        assert!(text.contains(&format!("href=\"#{service}\"")), "{service}");
    }
    assert!(text.contains("<svg") && text.contains("prefers-color-scheme: dark"));
}

#[test]
fn an_unknown_service_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_urmqtt"));
    let output = command.args(["audit", "ghost"]).current_dir(root).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no service ghost"));
}
