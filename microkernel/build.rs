//! Hands the architecture's linker script to the kernel binary.

fn main() {
    println!("cargo:rerun-if-changed=linker");
    println!("cargo:rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    if var("CARGO_CFG_TARGET_OS") != "none" {
        return;
    }
    let script = format!("{}/linker/{}.ld", var("CARGO_MANIFEST_DIR"), var("CARGO_CFG_TARGET_ARCH"));
    println!("cargo:rustc-link-arg-bins=--script={script}");
    // x86_64-unknown-none would make a static PIE; the kernel has one fixed address and no relocations.
    println!("cargo:rustc-link-arg-bins=--no-pie");
    println!("cargo:rustc-link-arg-bins=--gc-sections");
    println!("cargo:rustc-link-arg-bins=-zmax-page-size=4096");
    println!("cargo:rustc-link-arg-bins=--build-id=none");
}
