//! Performs every operation of a program on an image. All loops are bounded, because a damaged
//! image may appear to contain an unlimited number of names.

use std::collections::BTreeSet;

use kumihimo_store::{
    Caller, Changes, Entry, Errno, Kind, New, Node, Result, Seek, Store, XattrMode,
};

/// Maximum number of visited nodes.
const NODES: usize = 400;
/// Maximum number of names looked up in a directory.
const NAMES: usize = 300;
/// Maximum number of entries read before a listing is cancelled.
const LISTED: usize = 20_000;
const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1, umask: 0 };
const WRITING: u32 = 2;

/// Counts of operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Nodes whose attributes could be read.
    pub nodes: usize,
    /// Operations that failed with `EIO`.
    pub damaged: usize,
    /// Operations that succeeded.
    pub done: usize,
}

impl Outcome {
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.done += 1;
                Some(value)
            }
            Err(errno) => {
                self.damaged += usize::from(errno == Errno::IO);
                None
            }
        }
    }
}

/// Walks the tree and reads everything. If `writable`, also changes the files found and closes the
/// store.
pub fn exercise(store: &dyn Store, writable: bool) -> Outcome {
    let mut outcome = Outcome::default();
    let found = walk(store, &mut outcome);
    if writable {
        for entry in found.iter().take(60) {
            change(store, entry, &mut outcome);
        }
        for entry in found.iter().take(60).filter(|entry| entry.attributes.kind == Kind::Directory)
        {
            let last = found.last().map_or(store.root(), |entry| entry.attributes.node);
            names(store, entry.attributes.node, last, &mut outcome);
        }
    }
    outcome.note(store.statistics());
    for entry in found {
        store.forget(entry.attributes.node, 1);
    }
    outcome.note(store.sync_all());
    outcome.note(store.close());
    outcome
}

/// Visits every reachable node once. The nodes stay referenced.
fn walk(store: &dyn Store, outcome: &mut Outcome) -> Vec<Entry> {
    let mut found: Vec<Entry> = store.lookup(store.root(), b".").into_iter().collect();
    let mut seen: BTreeSet<Node> = found.iter().map(|entry| entry.attributes.node).collect();
    let mut next = 0;
    while next < found.len() && next < NODES {
        let entry = found[next];
        next += 1;
        look(store, &entry, outcome);
        if entry.attributes.kind != Kind::Directory {
            continue;
        }
        for name in list(store, entry.attributes.node, outcome) {
            if let Some(entry) = outcome.note(store.lookup(entry.attributes.node, &name)) {
                if seen.insert(entry.attributes.node) {
                    found.push(entry);
                } else {
                    store.forget(entry.attributes.node, 1);
                }
            }
        }
    }
    outcome.nodes = next;
    found
}

fn list(store: &dyn Store, node: Node, outcome: &mut Outcome) -> Vec<Vec<u8>> {
    let Some(handle) = outcome.note(store.open(node, 0)) else { return Vec::new() };
    let (mut names, mut count, mut offset) = (Vec::new(), 0, 0);
    // In two portions: the image determines the position at which the second begins.
    for portion in [5, LISTED] {
        let result = store.read_directory(node, handle, offset, &mut |listed| {
            count += 1;
            offset = listed.next;
            assert!(
                !listed.name.is_empty() && listed.name.len() <= 255,
                "a name must have 1 to 255 bytes"
            );
            assert!(
                !listed.name.contains(&b'/') && !listed.name.contains(&0),
                "a name must not contain a slash or a zero byte"
            );
            if names.len() < NAMES {
                names.push(listed.name.to_vec());
            }
            count % portion != 0
        });
        outcome.note(result);
    }
    store.release(node, handle);
    names
}

fn look(store: &dyn Store, entry: &Entry, outcome: &mut Outcome) {
    let node = entry.attributes.node;
    outcome.note(store.attributes(node));
    if let Some(names) = outcome.note(store.xattrs(node)) {
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).take(50) {
            outcome.note(store.xattr(node, name));
        }
    }
    match entry.attributes.kind {
        Kind::Symlink => {
            if let Some(target) = outcome.note(store.read_link(node)) {
                assert!(
                    !target.is_empty() && target.len() <= 4096,
                    "a target must have 1 to 4096 bytes"
                );
            }
        }
        Kind::File => read(store, node, entry.attributes.size, outcome),
        _ => {}
    }
}

/// Reads the beginning, the end, the regions where the depth of the block map changes, and all data
/// regions.
fn read(store: &dyn Store, node: Node, size: u64, outcome: &mut Outcome) {
    let Some(handle) = outcome.note(store.open(node, 0)) else { return };
    let mut buffer = vec![0; 10_000];
    for at in [
        0,
        12 << 10,
        268 << 10,
        1 << 20,
        65_804 << 10,
        1 << 32,
        size.saturating_sub(10_000),
        u64::MAX - 5,
    ] {
        outcome.note(store.read(node, handle, at, &mut buffer));
    }
    let mut at = 0;
    for _ in 0..20 {
        let Some(data) = outcome.note(store.seek(node, handle, at, Seek::Data)) else { break };
        outcome.note(store.read(node, handle, data, &mut buffer));
        let Some(hole) = outcome.note(store.seek(node, handle, data, Seek::Hole)) else { break };
        assert!(at <= data && data < hole, "data from {data} to {hole}, searched from {at}");
        at = hole;
    }
    store.release(node, handle);
}

fn change(store: &dyn Store, entry: &Entry, outcome: &mut Outcome) {
    let node = entry.attributes.node;
    outcome.note(store.change(node, &Changes { permissions: Some(0o700), ..Changes::default() }));
    outcome.note(store.set_xattr(node, b"user.new", b"value", XattrMode::Any));
    outcome.note(store.set_xattr(node, b"user.long", &[7; 600], XattrMode::Any));
    outcome.note(store.remove_xattr(node, b"user.new"));
    if entry.attributes.kind != Kind::File {
        return;
    }
    let Some(handle) = outcome.note(store.open(node, WRITING)) else { return };
    for at in [0, 11 << 10, entry.attributes.size, 300 << 10, 70_000 << 10] {
        outcome.note(store.write(node, handle, at, &[0x5a; 3000]));
    }
    outcome.note(store.allocate(node, handle, 0, 5000, 9000));
    outcome.note(store.allocate(node, handle, 3, 1000, 1 << 20));
    outcome.note(store.sync(node, handle, false));
    for size in [20_000, 100, 0] {
        outcome.note(store.change(node, &Changes { size: Some(size), ..Changes::default() }));
    }
    store.release(node, handle);
}

/// Creates, renames and removes names in a directory, both existing and missing ones.
fn names(store: &dyn Store, node: Node, other: Node, outcome: &mut Outcome) {
    let old = list(store, node, outcome);
    let whats = [
        New::File { mode: 0o644 },
        New::Directory { mode: 0o755 },
        New::Symlink { target: &[b't'; 100] },
        New::Special { kind: Kind::CharDevice, mode: 0o600, device: 0x0103 },
    ];
    for (number, what) in whats.into_iter().enumerate() {
        let name = format!("new{number}");
        if let Some(entry) = outcome.note(store.make(&CALLER, node, name.as_bytes(), what)) {
            store.forget(entry.attributes.node, 1);
        }
    }
    outcome.note(store.rename(node, b"new0", node, b"renamed", false));
    outcome.note(store.rename(node, b"new1", other, b"moved", false));
    if let Ok(entry) = store.lookup(node, b"renamed") {
        if let Some(linked) = outcome.note(store.link(entry.attributes.node, node, b"linked")) {
            store.forget(linked.attributes.node, 1);
        }
        store.forget(entry.attributes.node, 1);
    }
    for name in old.iter().filter(|name| *name != b"." && *name != b"..").take(20) {
        outcome.note(store.rename(node, name, other, name, false));
        outcome.note(store.unlink(node, name));
        outcome.note(store.remove_directory(node, name));
    }
    outcome.note(store.unlink(node, b"new2"));
    outcome.note(store.unlink(node, b"renamed"));
}
