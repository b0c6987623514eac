//! Links the test kernel where the Limine protocol wants kernels.

fn main() {
    let script = format!("{}/link.ld", std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed={script}");
    for argument in ["-no-pie", "-zmax-page-size=4096", "-znoexecstack"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-link-arg-bins=-T{script}");
}
