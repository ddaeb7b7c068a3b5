//! Link options of the shared library.

fn main() {
    // Name for the dynamic linker. The number rises with every incompatible change of kumihimo.h.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkumihimo_c.so.0");
    // Virtual processors and the link poller run in the library until the process ends, so
    // dlclose(3) must not unmap it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
