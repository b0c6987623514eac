//! Links the loader at 1 MiB: QEMU and GRUB put it where its program headers say.

fn main() {
    let script = format!("{}/link.ld", std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed={script}");
    for argument in ["-no-pie", "-zmax-page-size=4096", "-znoexecstack"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-link-arg-bins=-T{script}");
}
