//! Guest instructions, counted by a QEMU plugin and read while the guest runs.

use crate::tools;
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub struct Counter {
    file: PathBuf,
}

impl Counter {
    /// Builds the plugin; the words for `urmqtt run` come with it.
    pub fn new(name: &str) -> Result<(Self, Vec<String>)> {
        let folder = tools::scratch(&format!("count-{name}"))?;
        let (plugin, file) = (folder.join("libicount.so"), folder.join("instructions"));
        let source = tools::root().join("image/smoke/src/icount.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&plugin).arg(source);
        let output = tools::run(&mut gcc, Duration::from_secs(60))?;
        ensure!(output.status.success(), "gcc: {}", String::from_utf8_lossy(&output.stderr));
        let words = vec![
            format!("--qemu-arg=-plugin"),
            format!("--qemu-arg={},out={}", plugin.display(), file.display()),
        ];
        Ok((Counter { file }, words))
    }

    pub fn read(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        let file = std::fs::File::open(&self.file).with_context(|| format!("{}", self.file.display()))?;
        file.read_exact_at(&mut bytes, 0)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
