//! ring's declarations for the tasks' targets name a library `zircon`; what they want of it is in `src/crypto.rs`, so the library is empty.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_VENDOR").as_deref() == Ok("urmqtt") {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        fs::write(out.join("libzircon.a"), "!<arch>\n").expect("the build folder is writable");
        println!("cargo:rustc-link-search=native={}", out.display());
    }
}
