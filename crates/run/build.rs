//! Directs all calls of replaced functions inside the library to the next definitions.

include!("../interpose/names.rs");

macro_rules! list {
    ($($name:ident)*) => { &[$(stringify!($name)),*] };
}

fn main() {
    let names: &[&str] = names!(list);
    for name in names {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    // Functions that both `arch` and `crates/preload` define: calls from here reach those of
    // `arch`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // The runtime runs until the process ends, so dlclose(3) must not unmap the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../interpose/names.rs");
}
