//! Links a flat, position-independent image: whoever boots a Linux Image decides where it lies.

fn main() {
    let script = format!("{}/link.ld", std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed={script}");
    for argument in ["-pie", "--no-dynamic-linker", "-znotext", "-zmax-page-size=4096", "--oformat=binary"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-link-arg-bins=-T{script}");
}
