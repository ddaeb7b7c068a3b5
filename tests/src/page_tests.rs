//! Carries the Rust code of README and book as documentation tests: rustdoc compiles each block,
//! and runs those that are not `no_run`.
//!
//! A block that includes a program of `examples` is named `rs`, which rustdoc leaves alone: that
//! program has a test of its own.
//! `tests/tests/book.rs` checks that each page with code stands here.

/// A documentation test for each block of these pages.
macro_rules! carry {
    ($($name:ident $page:literal),* $(,)?) => {$(
        #[doc = include_str!(concat!("../../", $page))]
        mod $name {}
    )*};
}

carry! {
    readme "README.md",
    introduction "docs/src/introduction.md",
    start_hello "docs/src/start/hello.md",
    porting "docs/src/guides/porting.md",
    crates "docs/src/guides/crates.md",
    unmodified "docs/src/guides/unmodified.md",
    blocking "docs/src/guides/blocking.md",
    async_crates "docs/src/guides/async.md",
    waiting "docs/src/guides/waiting.md",
    profiling "docs/src/guides/profiling.md",
    priorities "docs/src/guides/priorities.md",
    policies "docs/src/guides/policies.md",
    files "docs/src/guides/files.md",
    servers "docs/src/guides/servers.md",
    gates "docs/src/guides/gates.md",
    resources "docs/src/guides/resources.md",
    configuration "docs/src/guides/configuration.md",
    memory "docs/src/guides/memory.md",
    limits_attributes "docs/src/reference/limits/attributes.md",
}
