//! Describes the hardware and software of this machine, for reports.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};

/// Names and values in the order of printing.
pub fn description() -> Vec<(&'static str, String)> {
    let uname = rustix::system::uname();
    let kernel =
        format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = after(&cpuinfo, "model name").unwrap_or("unknown").to_owned();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let virtual_machine = if cpuinfo.contains(" hypervisor") { "yes" } else { "no" };
    vec![
        ("cpu", cpu),
        ("cores", own_cores().len().to_string()),
        ("virtual machine", virtual_machine.to_owned()),
        ("memory", after(&memory, "MemTotal").unwrap_or("unknown").to_owned()),
        ("kernel", kernel),
        ("libc", version_of("ldd")),
        ("rustc", version_of("rustc")),
        ("go", go_version()),
        ("huge pages", bracketed("/sys/kernel/mm/transparent_hugepage/enabled")),
        (
            "load at the start",
            fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned(),
        ),
    ]
}

/// Available memory in bytes, as the kernel estimates it (`MemAvailable`).
pub fn available() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes =
        after(&memory, "MemAvailable").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The cores in this process's affinity mask.
pub fn own_cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn version_of(program: &str) -> String {
    first_line(program, &["--version"])
}

fn go_version() -> String {
    first_line("go", &["version"])
}

fn first_line(program: &str, args: &[&str]) -> String {
    let output = std::process::Command::new(program).args(args).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("not installed").to_owned()
}

fn bracketed(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or("unknown", |(word, _)| word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_value() {
        for (name, value) in description() {
            assert!(!value.is_empty(), "{name}");
        }
    }
}
