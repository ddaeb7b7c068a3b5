//! Builds the C and C++ code of the tests: two linked files and two shared libraries for
//! thread-local storage, and code that blocks in C.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=native");
    println!("cargo::rustc-check-cfg=cfg(cplusplus)");
    let out = std::env::var("OUT_DIR").expect("cargo gives it");
    cc::Build::new().file("native/locals.c").opt_level(1).compile("locals");
    cc::Build::new().file("native/blocks.c").opt_level(1).compile("blocks");
    cc::Build::new().file("native/fire.c").opt_level(2).compile("fire");
    if cc::Build::new()
        .cpp(true)
        .file("native/objects.cc")
        .opt_level(1)
        .cargo_warnings(false)
        .try_compile("objects")
        .is_ok()
    {
        println!("cargo::rustc-cfg=cplusplus");
    }
    for name in ["dynamic", "initial_exec"] {
        let to = Path::new(&out).join(format!("lib{name}.so"));
        let status = cc::Build::new()
            .get_compiler()
            .to_command()
            // Without a sanitizer: the library would bring the C compiler's sanitizer runtime in
            // addition to Rust's.
            .args(["-O1", "-fno-sanitize=all", "-fPIC", "-shared", "-o"])
            .arg(&to)
            .arg(format!("native/{name}.c"))
            .status()
            .expect("a C compiler");
        assert!(status.success(), "{name}: {status}");
        println!("cargo::rustc-env=LIB_{}={}", name.to_uppercase(), to.display());
    }
}
