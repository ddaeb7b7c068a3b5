//! Everything in Kumihimo that reads foreign bytes, as functions of bytes.
//!
//! A target calls the real code with its input and checks more than the absence of a panic: memory
//! and steps are bounded by the length of the input, formats survive a round trip, and results
//! match another implementation where there is one. `fuzz/` has a program for each target, and
//! `tests/replay.rs` replays the committed corpora.
#![forbid(unsafe_code)]

mod config;
mod control;
pub mod corpus;
mod fuse;
mod kv;
mod lane;
mod memory;
mod records;
pub mod seeds;
mod trace;
mod unwind;

/// A target: its name, and its function.
pub struct Target {
    /// Name of the program in `fuzz/`, and of the corpus.
    pub name: &'static str,
    /// Processes one input.
    ///
    /// # Panics
    /// If the code under test violates a requirement.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 13] = [
    Target { name: "kv_requests", run: kv::requests },
    Target { name: "kv_commands", run: kv::commands },
    Target { name: "kv_log", run: kv::log },
    Target { name: "control_requests", run: control::requests },
    Target { name: "control_answers", run: control::answers },
    Target { name: "lane", run: lane::lane },
    Target { name: "link_records", run: records::records },
    Target { name: "spool", run: trace::spool },
    Target { name: "trace_file", run: trace::file_of },
    Target { name: "unwind", run: unwind::unwind },
    Target { name: "ext2", run: ext2 },
    Target { name: "fuse", run: fuse::requests },
    Target { name: "config", run: config::values },
];

/// Returns the target of this name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("no target has the name {name}"))
}

/// An ext2 image, run-length encoded.
fn ext2(data: &[u8]) {
    kumihimo_proof::fuzz::image(data);
}
