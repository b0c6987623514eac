//! Brokers as data: how one is started, and with which files.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const KNOWN: [&str; 7] = [
    include_str!("../../peers/mosquitto.toml"),
    include_str!("../../peers/mosquitto-acl.toml"),
    include_str!("../../peers/rumqttd.toml"),
    include_str!("../../peers/rustls-aws-lc.toml"),
    include_str!("../../peers/urmqtt.toml"),
    include_str!("../../peers/urmqtt-image.toml"),
    include_str!("../../peers/linux-guest.toml"),
];

/// In words of the command and in files, `{program}`, `{self}` (`urmqtt`), `{folder}`, `{port}` and `{certs}` are replaced.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    pub name: String,
    /// The first that exists is taken; `{self}` is `urmqtt`.
    pub programs: Vec<String>,
    /// Words that make the program print its version.
    pub version: Vec<String>,
    pub install: String,
    pub command: Vec<String>,
    /// Written into the broker's folder.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Commands that run before, to their end.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// How long it may take until it serves.
    #[serde(default = "quick_start")]
    pub start_seconds: u64,
    /// Files whose sizes make the size of the system.
    #[serde(default)]
    pub sizes: Vec<String>,
    /// Where the guest's instructions are counted.
    pub instructions: Option<String>,
}

fn quick_start() -> u64 {
    15
}

/// What the words in braces stand for.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub program: &'a Path,
    pub folder: &'a Path,
    pub port: u16,
    pub certs: &'a Path,
}

impl Peer {
    pub fn parse(text: &str) -> Result<Self> {
        let peer: Peer = toml::from_str(text)?;
        ensure!(!peer.command.is_empty(), "{}: the command is empty", peer.name);
        Ok(peer)
    }

    /// By name, or a file with a description.
    pub fn find(name: &str) -> Result<Self> {
        if name.ends_with(".toml") {
            let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
            return Self::parse(&text).with_context(|| name.to_owned());
        }
        let known: Vec<_> = KNOWN.iter().map(|text| Self::parse(text)).collect::<Result<_>>()?;
        let names = known.iter().map(|p| p.name.clone()).collect::<Vec<_>>().join(", ");
        match known.into_iter().find(|p| p.name == name) {
            Some(peer) => Ok(peer),
            None => bail!("there is no peer {name:?}; known are {names}, or a file NAME.toml"),
        }
    }

    pub fn program(&self) -> Option<PathBuf> {
        self.programs.iter().find_map(|name| {
            if name == "{self}" {
                return Some(crate::urmqtt());
            }
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let candidates: Vec<_> = if name.contains('/') {
                vec![PathBuf::from(name)]
            } else {
                std::env::split_paths(&folders).map(|folder| folder.join(name)).collect()
            };
            candidates.into_iter().find(|path| path.is_file())
        })
    }

    /// From the first line with a digit in it, beginning with that.
    pub fn version(&self, program: &Path) -> Option<String> {
        let output = Command::new(program).args(&self.version).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
        Some(line[line.find(|c: char| c.is_ascii_digit())?..].trim().to_owned())
    }

    /// Writes the files and runs what comes before; gives the command.
    pub fn prepare(&self, place: &Place) -> Result<Command> {
        for (name, text) in &self.files {
            std::fs::write(place.folder.join(name), place.fill(text))?;
        }
        for words in &self.prepare {
            let mut command = place.command(words)?;
            let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
            ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        place.command(&self.command)
    }

    /// Sum of the files that are the system.
    pub fn size(&self, place: &Place) -> Result<Option<u64>> {
        let sizes: Vec<u64> = self
            .sizes
            .iter()
            .map(|file| Ok(std::fs::metadata(place.fill(file)).with_context(|| file.clone())?.len()))
            .collect::<Result<_>>()?;
        Ok((!sizes.is_empty()).then(|| sizes.iter().sum()))
    }
}

impl Place<'_> {
    fn command(&self, words: &[String]) -> Result<Command> {
        let mut words = words.iter().map(|word| self.fill(word));
        let mut command = Command::new(words.next().context("the command is empty")?);
        command.args(words);
        Ok(command)
    }

    pub fn fill(&self, text: &str) -> String {
        text.replace("{program}", &self.program.display().to_string())
            .replace("{self}", &crate::urmqtt().display().to_string())
            .replace("{folder}", &self.folder.display().to_string())
            .replace("{port}", &self.port.to_string())
            .replace("{certs}", &self.certs.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_known_peers_are_well_formed() {
        for name in [
            "mosquitto",
            "mosquitto-acl",
            "rumqttd",
            "rustls-aws-lc",
            "urmqtt",
            "urmqtt-image",
            "linux-guest",
        ] {
            assert_eq!(Peer::find(name).unwrap().name, name);
        }
        assert!(Peer::find("nobody").unwrap_err().to_string().contains("rumqttd"));
    }

    #[test]
    fn braces_are_filled_in_files_and_command() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            program: Path::new("/bin/mosquitto"),
            folder: folder.path(),
            port: 4711,
            certs: Path::new("/c"),
        };
        let peer = Peer::find("mosquitto").unwrap();
        let command = peer.prepare(&place).unwrap();
        assert_eq!(command.get_program(), "/bin/mosquitto");
        let text = std::fs::read_to_string(folder.path().join("mosquitto.conf")).unwrap();
        assert!(text.contains("listener 4711 127.0.0.1\ncafile /c/ca.crt\n"), "{text}");
    }

    #[test]
    fn a_description_with_an_unknown_word_is_refused() {
        assert!(Peer::parse("name = \"x\"\nflavour = 1").is_err());
    }
}
