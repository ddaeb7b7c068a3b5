//! `KUMI_LAB`: settings for tests and experiments.
//!
//! The value is a list of `key=value` pairs separated by commas. A key may appear once. Values
//! contain neither `=` nor `,`; a colon precedes a number within a value (`batch=fixed:3`). An
//! empty value leaves the default in place.

use crate::error::{Problem, Why};
use crate::values::{
    Batch, Bpf, Dlopen, FsBase, Guard, Locking, Queue, Ready, TRACE_RECORDS, Tls, number, switch,
};

/// Settings of `KUMI_LAB`; `None` means the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lab {
    /// Thread-local storage of microprocesses.
    pub tls: Option<Tls>,
    /// Guard pages of stacks.
    pub guard: Option<Guard>,
    /// How FS and GS are written.
    pub fsbase: Option<FsBase>,
    /// The program's dlopen(3).
    pub dlopen: Option<Dlopen>,
    /// The design of the run queues.
    pub queue: Option<Queue>,
    /// The locking design of the resource table.
    pub locking: Option<Locking>,
    /// Where the BPF program of the event source `bpf` runs.
    pub bpf: Option<Bpf>,
    /// When system calls enter the kernel together.
    pub batch: Option<Batch>,
    /// Whether io_uring may be used.
    pub uring: Option<bool>,
    /// The order in which microprocesses with ready descriptors run.
    pub ready: Option<Ready>,
    /// Whether a microprocess that blocks often keeps its kernel thread.
    pub sticky: Option<bool>,
    /// Whether debug builds check that a microprocess leaves its kernel thread as it was.
    pub check_attributes: Option<bool>,
    /// Records in each buffer of a trace.
    pub trace_buffer: Option<usize>,
}

/// A key of `KUMI_LAB`.
#[derive(Debug)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// The values that are allowed.
    pub allowed: &'static str,
    /// The default, in words.
    pub default: &'static str,
    /// Effect of the setting.
    pub effect: &'static str,
    pub(crate) read: fn(&mut Lab, &str) -> bool,
}

/// Stores a parsed value. Returns whether there is one.
pub(crate) fn store<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    let is_valid = value.is_some();
    if is_valid {
        *place = value;
    }
    is_valid
}

/// The keys of `KUMI_LAB`.
pub const KEYS: [Key; 13] = [
    Key {
        name: "tls",
        allowed: "clone, donor, kernel or fail",
        default: "the first that passes its self-test",
        effect: "thread-local storage of microprocesses (kernel: 1:1 kernel threads; fail: \
                 as if the self-test failed)",
        read: |lab, text| store(&mut lab.tls, Tls::parse(text)),
    },
    Key {
        name: "guard",
        allowed: "install or mprotect",
        default: "install where the kernel has it (Linux 6.13)",
        effect: "guard pages of stacks",
        read: |lab, text| store(&mut lab.guard, Guard::parse(text)),
    },
    Key {
        name: "fsbase",
        allowed: "fsgsbase or arch_prctl",
        default: "fsgsbase where CPU and kernel allow it",
        effect: "how a switch writes the FS base",
        read: |lab, text| store(&mut lab.fsbase, FsBase::parse(text)),
    },
    Key {
        name: "dlopen",
        allowed: "interposed or listed",
        default: "interposed where Kumihimo is part of the executable",
        effect: "how libraries that are loaded late find TLS blocks",
        read: |lab, text| store(&mut lab.dlopen, Dlopen::parse(text)),
    },
    Key {
        name: "queue",
        allowed: if cfg!(feature = "lab-queue") {
            "ring, locked or steal"
        } else {
            "ring (locked and steal need the feature `lab`)"
        },
        default: "ring",
        effect: "design of the run queues (Builder::queue takes precedence)",
        read: |lab, text| {
            let has = |design: &Queue| cfg!(feature = "lab-queue") || *design == Queue::Ring;
            store(&mut lab.queue, Queue::parse(text).filter(has))
        },
    },
    Key {
        name: "locking",
        allowed: if cfg!(feature = "lab-locking") {
            "kind, id or vp"
        } else {
            "vp (kind and id need the feature `lab`)"
        },
        default: "vp",
        effect: "locking design of the resource table (Builder::locking takes precedence)",
        read: |lab, text| {
            let has = |design: &Locking| cfg!(feature = "lab-locking") || *design == Locking::Vp;
            store(&mut lab.locking, Locking::parse(text).filter(has))
        },
    },
    Key {
        name: "bpf",
        allowed: "thread or switch",
        default: "thread",
        effect: "where the program of the event source bpf runs (switch: Linux 6.9, experimental)",
        read: |lab, text| store(&mut lab.bpf, Bpf::parse(text)),
    },
    Key {
        name: "batch",
        allowed: Batch::ALLOWED,
        default: "adaptive",
        effect: "when system calls enter the kernel together (Builder::batch takes precedence)",
        read: |lab, text| store(&mut lab.batch, Batch::parse(text)),
    },
    Key {
        name: "uring",
        allowed: "on or off",
        default: "on where the kernel allows it",
        effect: "io_uring for batches and direct reads",
        read: |lab, text| store(&mut lab.uring, switch(text)),
    },
    Key {
        name: "ready",
        allowed: "arrival or recent",
        default: "arrival",
        effect: "order in which microprocesses run whose descriptors became ready \
                 (Builder::ready_order takes precedence)",
        read: |lab, text| store(&mut lab.ready, Ready::parse(text)),
    },
    Key {
        name: "sticky",
        allowed: "on or off",
        default: "on",
        effect: "a microprocess that blocks often keeps its kernel thread (Builder::sticky takes \
                 precedence)",
        read: |lab, text| store(&mut lab.sticky, switch(text)),
    },
    Key {
        name: "check_attributes",
        allowed: "on or off",
        default: "on in builds with debug assertions; other builds have no such check",
        effect: "a microprocess that changes its kernel thread by system calls of its own is \
                 noticed at switches",
        read: |lab, text| store(&mut lab.check_attributes, switch(text)),
    },
    Key {
        name: "trace_buffer",
        allowed: "a number of records, 8 to 16777216",
        default: "32768",
        effect: "records in each buffer of a trace (Builder::trace_buffer takes precedence)",
        read: |lab, text| store(&mut lab.trace_buffer, number(text, TRACE_RECORDS)),
    },
];

/// Returns the pairs of a list: the key, and the value if there is one.
pub(crate) fn pairs(list: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    list.split(',')
        .filter(|_| !list.is_empty())
        .map(|pair| pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value))))
}

/// Reads a list of pairs. Returns the pairs that set something, and appends errors to `problems`.
pub(crate) fn read(
    lab: &mut Lab,
    list: &str,
    problems: &mut Vec<Problem>,
) -> Vec<(&'static str, String)> {
    let mut given: Vec<(&'static str, String)> = Vec::new();
    let mut wrong = |pair: &str, allowed: String| {
        problems.push(Problem {
            variable: "KUMI_LAB".to_owned(),
            value: pair.to_owned(),
            why: Why::Expected(allowed),
        });
    };
    if pairs(list).any(|(name, _)| name.is_empty()) {
        wrong(list, format!("key=value pairs, none of them empty, with the keys {}", names()));
    }
    for (name, value) in pairs(list).filter(|(name, _)| !name.is_empty()) {
        let pair = value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"));
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            wrong(&pair, format!("key=value pairs with the keys {}", names()));
            continue;
        };
        match value {
            None => wrong(&pair, format!("{name}=VALUE, with {} as VALUE", key.allowed)),
            Some("") => {}
            Some(_) if given.iter().any(|(given, _)| *given == name) => {
                wrong(&pair, format!("{name} once"));
            }
            Some(value) if (key.read)(lab, value) => given.push((key.name, value.to_owned())),
            Some(_) => wrong(&pair, format!("{} for {name}", key.allowed)),
        }
    }
    given
}

fn names() -> String {
    KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// Merges two lists: the pairs of `more` replace those of `list` with the same keys. A pair without
/// a value removes its key.
pub(crate) fn merge(list: &str, more: &str) -> String {
    let replaced = |key: &str| pairs(more).any(|(name, _)| name == key);
    let kept = pairs(list).filter(|(key, _)| !replaced(key));
    let added = pairs(more).filter(|(_, value)| value.is_some_and(|value| !value.is_empty()));
    let all: Vec<String> = kept
        .chain(added)
        .map(|(key, value)| value.map_or_else(|| key.to_owned(), |value| format!("{key}={value}")))
        .collect();
    all.join(",")
}
