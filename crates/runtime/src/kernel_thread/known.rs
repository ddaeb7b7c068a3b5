//! What is known of the attributes of a kernel thread that cannot be set back: for the check of
//! debug builds ([`crate::upcall::change_check`]).

use std::cell::Cell;
use std::sync::OnceLock;

use kumihimo_arch::irrevocable::{Difference, Irrevocable};
use kumihimo_arch::tls;

/// What is known of a kernel thread. Only the thread itself accesses it.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// `None`: nothing is compared.
    values: Cell<Option<Irrevocable>>,
    /// The number of set*id rounds of the C library at that time.
    rounds: Cell<usize>,
}

impl Known {
    /// Takes the snapshot with which the calling kernel thread is compared from here on, if the
    /// check is made.
    pub(crate) fn begin(&self) {
        if is_on() {
            self.renew();
        }
    }

    /// Whether the thread is compared.
    pub(crate) fn is_compared(&self) -> bool {
        self.values.get().is_some()
    }

    fn renew(&self) -> Irrevocable {
        // Read before the values: a round in between is found by the next comparison.
        self.rounds.set(tls::setxid::rounds());
        let values = Irrevocable::now(std::process::id());
        self.values.set(Some(values));
        values
    }

    /// Returns an attribute of the calling kernel thread that has changed since the last call, but
    /// not in the whole process.
    pub(crate) fn changed(&self) -> Option<Difference> {
        let (before, rounds) = (self.values.get()?, self.rounds.get());
        let difference = self.renew().difference(&before)?;
        let is_of_process = difference.may_be_of_process
            // Read again: a round may have come while the values were read.
            && (tls::setxid::rounds() != rounds || is_shared_with_another_thread());
        (!is_of_process).then_some(difference)
    }
}

/// Whether the check is made: `KUMI_LAB=attributes=...`, by default in debug builds. Never under a
/// filter of system calls, which may end the process for the questions.
fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| {
        let asked = kumihimo_config::get().lab.check_attributes;
        cfg!(debug_assertions) && asked.unwrap_or(true) && !Irrevocable::is_filtered()
    })
}

/// Whether another thread of the process has the same credentials, capabilities and filters, which
/// shows that they were changed for all (proc_pid_status(5)).
fn is_shared_with_another_thread() -> bool {
    const FIELDS: [&str; 10] = [
        "Uid",
        "Gid",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
        "Groups",
    ];
    let fields = |thread: &str| -> Option<Vec<String>> {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
        let is_compared =
            |line: &&str| line.split_once(':').is_some_and(|(field, _)| FIELDS.contains(&field));
        Some(status.lines().filter(is_compared).map(str::to_owned).collect())
    };
    // SAFETY: takes nothing.
    let own = unsafe { kumihimo_arch::system_call(libc::SYS_gettid, [0; 6]) }.to_string();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    // The first one is the program's: the least likely to be bound.
    let mut others = threads
        .filter_map(|thread| thread.ok()?.file_name().into_string().ok())
        .filter(|thread| *thread != own);
    others.next().is_some_and(|other| fields(&other).is_some_and(|of| Some(of) == fields(&own)))
}
