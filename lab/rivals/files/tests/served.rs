//! Every operation that the loads report was a request to the server: with timeouts of 0 and
//! O_DIRECT, the kernel answers none from its caches.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use kumihimo_bench_files::{closed, tree};

// Opcodes of linux/fuse.h.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const UNLINK: u32 = 10;
const READ: u32 = 15;
const CREATE: u32 = 35;

/// Runs a load. Returns the requests that were served, and the number of operations that the load
/// reports.
fn served(operation: &str, clients: usize) -> Option<(BTreeMap<u32, u64>, u64)> {
    let place = std::env::temp_dir().join(format!("rival-files-{operation}-{}", std::process::id()));
    let (from, at) = (place.join("from"), place.join("at"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&at).unwrap();
    tree::fill(&from).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_rival-files"))
        .args(["servers", "server=memory", "threads=2"])
        .args([format!("from={}", from.display()), format!("at={}", at.display())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    let counted = first.starts_with("mounted ").then(|| {
        let operations =
            closed(operation, &at, clients, Duration::from_millis(200)).unwrap().get("ops").unwrap() as u64;
        rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM)
            .unwrap();
        let last = said.next().unwrap().unwrap();
        let words = last.strip_prefix("served").unwrap().split_whitespace();
        let counts = words.map(|word| word.split_once('=').unwrap());
        (counts.map(|(opcode, count)| (opcode.parse().unwrap(), count.parse().unwrap())).collect(), operations)
    });
    server.wait().unwrap();
    fs::remove_dir_all(&place).unwrap();
    if counted.is_none() {
        eprintln!("skipped: {first}");
    }
    counted
}

#[test]
fn each_operation_is_a_request() {
    // Allowance for path lookups of each client.
    const WAY: u64 = 100;
    // The kernel also requests the attributes of the directory, to check the permission to search
    // it (default_permissions).
    let stat = [(LOOKUP, 1, WAY), (GETATTR, 2, WAY)];
    for (operation, requests) in
        [("stat", &stat[..]), ("pread", &[(READ, 1, 0)]), ("create", &[(CREATE, 1, 0), (UNLINK, 1, 0)])]
    {
        let Some((counts, operations)) = served(operation, 4) else { return };
        assert!(operations > 0);
        for &(request, each, way) in requests {
            let count = counts.get(&request).copied().unwrap_or_default();
            let expected = operations * each..=operations * each + way;
            assert!(expected.contains(&count), "{operation}: {operations} operations, {count} requests {request}");
        }
    }
}
