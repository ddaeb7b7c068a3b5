//! `kumi doctor`: what this machine offers, and what the runtime makes of it.

use std::fs;

use kumihimo_arch::{stack, tls, x86_64};

/// Prints one line for each thing found.
pub fn run() -> Result<(), String> {
    for (name, value) in crate::bench::machine::description().into_iter().chain(runtime()) {
        println!("{name:<24} {value}");
    }
    Ok(())
}

fn runtime() -> Vec<(&'static str, String)> {
    let block = tls::get();
    let kind = match block.kind() {
        tls::Kind::Clone => "own block each, cloned from donors",
        tls::Kind::Donor => "own block each, from donor threads only",
        tls::Kind::Kernel => "none of their own: each microprocess is a kernel thread (1:1)",
    };
    let why = if block.why().is_empty() { String::new() } else { format!(" ({})", block.why()) };
    let fs = if x86_64::fsgsbase() { "wrfsbase" } else { "arch_prctl, about ten times slower" };
    vec![
        ("thread-local storage", format!("{kind}{why}; {} bytes", block.bytes())),
        ("FS and GS base", fs.to_owned()),
        ("stack guards", stack::guard_kind().to_owned()),
        ("smallest stack", format!("{} bytes", stack::minimum())),
        ("default queue", crate::bench::child::default_queue().to_owned()),
        ("mappings", setting("/proc/sys/vm/max_map_count")),
        ("threads", setting("/proc/sys/kernel/threads-max")),
        ("perf_event_paranoid", setting("/proc/sys/kernel/perf_event_paranoid")),
    ]
}

fn setting(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|e| format!("not readable: {e}"), |text| text.trim().to_owned())
}
