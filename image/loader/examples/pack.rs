//! For the loader's tests. `pack key BASE` makes the key pair `BASE.key`, `BASE.pub`; `pack ARCH KERNEL KEY OUT [COMMAND
//! LINE]` packs and signs one kernel.

use std::error::Error;
use std::io::Cursor;

use ipc::package::{self, Arch, KERNEL, Kind, Layout, MANIFEST, Meta, Part};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, command, base] = &args[..]
        && command == "key"
    {
        return make_key(base);
    }
    let [_, arch, kernel, key, out, rest @ ..] = &args[..] else {
        return Err("usage: pack key BASE | pack ARCH KERNEL KEY OUT [COMMAND LINE]".into());
    };
    let arch =
        [Arch::X86_64, Arch::Aarch64].into_iter().find(|a| a.name() == arch).ok_or("unknown architecture")?;
    let kernel = std::fs::read(kernel)?;
    // About as much as all the tasks, so that times mean something.
    let tasks = vec![0x5a; 2 << 20];
    let parts = [
        Part { kind: Kind::Kernel, name: KERNEL, bytes: &kernel },
        Part { kind: Kind::Manifest, name: MANIFEST, bytes: b"none" },
        Part { kind: Kind::Data, name: "filler", bytes: &tasks },
    ];
    let mut layout = Layout::new(parts.len());
    for part in &parts {
        layout.place(part.bytes.len() as u64);
    }
    let mut words = vec![0u64; layout.payload_len() as usize / 8];
    let payload = zerocopy::IntoBytes::as_mut_bytes(&mut words[..]);
    let line = rest.first().map_or("", |l| l);
    let meta = Meta { arch, image_version: 1, command_line: line };
    package::write(&meta, &parts, |_| [0; 32], payload)?;

    let secret =
        minisign::SecretKeyBox::from_string(&std::fs::read_to_string(key)?)?.into_unencrypted_secret_key()?;
    let comment = loader::verify::UNTRUSTED_COMMENT.strip_prefix("untrusted comment: ");
    let signature = minisign::sign(None, &secret, Cursor::new(&payload), Some("loader test"), comment)?;
    std::fs::write(out, [payload, signature.to_string().as_bytes()].concat())?;
    Ok(())
}

fn make_key(base: &str) -> Result<(), Box<dyn Error>> {
    let pair = minisign::KeyPair::generate_unencrypted_keypair()?;
    std::fs::write(format!("{base}.pub"), pair.pk.to_box()?.to_string())?;
    std::fs::write(format!("{base}.key"), pair.sk.to_box(None)?.to_string())?;
    Ok(())
}
