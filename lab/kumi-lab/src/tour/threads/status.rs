//! Memory use and limits from /proc.

use std::fs;

pub use kumi::host::description::available;

/// Memory use of this process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    pub page_tables: u64,
}

impl Memory {
    /// # Panics
    /// If /proc is not mounted.
    pub fn now() -> Memory {
        parse(&fs::read_to_string("/proc/self/status").expect("/proc/self/status"))
    }

    /// Growth since `before`.
    pub fn since(self, before: Memory) -> Memory {
        Memory {
            resident: self.resident.saturating_sub(before.resident),
            page_tables: self.page_tables.saturating_sub(before.page_tables),
        }
    }
}

fn parse(status: &str) -> Memory {
    Memory { resident: kilobytes(status, "VmRSS:"), page_tables: kilobytes(status, "VmPTE:") }
}

/// Kernel stacks of the whole machine in bytes.
pub fn kernel_stacks() -> u64 {
    kilobytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "KernelStack:")
}

/// Limit on kernel threads of the whole machine.
pub fn most_kernel_threads() -> Option<u64> {
    Some(setting("/proc/sys/kernel/threads-max")?.min(setting("/proc/sys/kernel/pid_max")?))
}

/// Limit on the mappings of a process.
pub fn most_mappings() -> Option<usize> {
    setting("/proc/sys/vm/max_map_count")?.try_into().ok()
}

fn setting(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn kilobytes(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kb| kb * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lines_of_proc_status_are_parsed() {
        let status = "Name:\tkumi\nVmRSS:\t    5112 kB\nRssAnon:\t 20 kB\nVmPTE:\t      60 kB\n";
        assert_eq!(parse(status), Memory { resident: 5_112 << 10, page_tables: 60 << 10 });
        assert_eq!(parse("VmRSS: many kB\n"), Memory::default());
    }

    #[test]
    fn this_process_has_memory_and_the_machine_has_some_left() {
        assert!(Memory::now().resident > 0 && Memory::now().page_tables > 0);
        assert!(available() > 0 && kernel_stacks() > 0 && most_kernel_threads().is_some());
    }

    #[test]
    fn smaller_memory_is_no_growth() {
        let (small, big) = (Memory::default(), Memory { resident: 5, page_tables: 2 });
        assert_eq!(small.since(big), small);
        assert_eq!(big.since(small), big);
    }
}
