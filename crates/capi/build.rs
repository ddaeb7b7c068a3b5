//! How the shared library is linked.

fn main() {
    // As the dynamic linker knows it; the number rises with every incompatible change of
    // kumihimo.h.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkumihimo_c.so.0");
    // Virtual processors and the link poller run in it until the process ends: dlclose must not
    // unmap it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
