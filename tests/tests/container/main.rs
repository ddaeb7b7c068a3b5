//! Programs inside a container as Docker makes it by default: no bpf, perf events or io_uring, a
//! CPU quota, limits on threads and memory, a read-only root, and a small `/dev/shm` or none.
//!
//! The tests make the container, which only root can; they are skipped otherwise. `kumi` inside a
//! container is tested in `tools/kumi/tests/machine/container.rs`.

mod echo;
mod files;
mod gates;
mod preemption;
mod restrictions;
mod retirement;
mod writable;

use kumihimo_tests::container::{Container, DEFAULT, USER};

/// The default container for root and for a user, each with and without `/dev/shm`.
pub const ALL: [Container; 4] = [
    DEFAULT,
    Container { has_shared_memory: false, ..DEFAULT },
    Container { user: USER, ..DEFAULT },
    Container { user: USER, has_shared_memory: false, ..DEFAULT },
];

/// Runs `body` in each container. It must not write to standard error.
pub fn in_each(name: &str, body: impl Fn()) {
    for container in ALL {
        container.run(name, &body, |ended| {
            let lines = ended.stderr.lines().filter(|line| line.starts_with("kumihimo"));
            assert_eq!(lines.count(), 0, "{container:?}: {}", ended.told());
        });
    }
}
