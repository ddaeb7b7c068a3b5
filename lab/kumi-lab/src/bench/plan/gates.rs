//! Cells of calls between processes, and of priorities across processes.

use super::{Cell, Plan, join};
use crate::bench::contender::{Contender, Runtime, own_cores};

/// Numbers of callers in `rpc`. The targets cover up to 64.
const CALLERS: [usize; 4] = [1, 16, 64, 1024];
const BYTES: [usize; 3] = [64, 4096, 1 << 20];
/// Maximum size of a copied payload. Larger ones of Kumihimo are passed by reference.
const INLINE: usize = 4096;
/// Maximum number of callers for iceoryx2.
const ICEORYX_CALLERS: usize = 64;

/// Number of cores of `inversion`: a computing process keeps the others from the core.
const INVERSION_CORES: usize = 1;

/// One cell of `rpc`, before contenders are added.
#[derive(Clone, Copy)]
struct Calls<'a> {
    plan: &'a Plan<'a>,
    callers: usize,
    bytes: usize,
    cores: usize,
    check: &'static str,
}

impl Plan<'_> {
    /// Without `full`, the cells of the targets: all transports for one caller of 64 bytes,
    /// Kumihimo beside `unix-socket` everywhere, both ways to multiplex for 64 callers; and large
    /// payloads that are not read.
    pub(super) fn rpc(&self) -> Vec<Cell> {
        let full = self.options.full;
        let mut cells = Vec::new();
        for &cores in &self.options.vps {
            for callers in CALLERS.into_iter().filter(|&callers| full || callers <= 64) {
                for bytes in BYTES {
                    let calls = Calls { plan: self, callers, bytes, cores, check: "whole" };
                    cells.push(Cell { vps: cores, contenders: calls.contenders(full) });
                }
            }
        }
        for &cores in self.options.vps.iter().filter(|&&cores| full || cores == 1) {
            for bytes in [INLINE, 1 << 20] {
                let calls = Calls { plan: self, callers: 1, bytes, cores, check: "head" };
                cells.push(Cell { vps: cores, contenders: calls.unread() });
            }
        }
        cells
    }

    /// Calls from machine to machine, of one caller also with the delay of a network between the
    /// machines; borders that have nothing to do; and a list of all machines.
    pub(super) fn remote(&self) -> Vec<Cell> {
        let calls = |callers: &str, delay: &str| {
            let ours = self.ours("full", &[callers, delay, "placement=adaptive"]);
            let rival =
                |transport| self.rival(Runtime::Rpc, &[transport, callers, delay], usize::MAX);
            let rivals = ["transport=tonic", "transport=tcp", "transport=tarpc"].map(rival);
            join([ours, join(rivals)])
        };
        let cells = [
            calls("callers=1", "delay_us=0"),
            calls("callers=64", "delay_us=0"),
            calls("callers=1", "delay_us=500"),
            self.ours("full", &["part=levels", "placement=adaptive"]),
            self.ours("full", &["part=idle"]),
            self.ours("full", &["part=ps"]),
        ];
        let vps = own_cores().len();
        cells.map(|contenders| Cell { vps, contenders }).into()
    }

    /// One cell for each burst and session.
    pub(super) fn priority(&self) -> Vec<Cell> {
        let causes: &[&str] =
            if self.options.full { &["by=thread", "by=timer"] } else { &["by=thread"] };
        let mut cells = Vec::new();
        for session in ["session=same", "session=separate"] {
            for burst in ["burst=100us", "burst=5ms"] {
                for by in causes {
                    let rival = |policy| {
                        self.rival(Runtime::Std, &[policy, burst, session, by], usize::MAX)
                    };
                    let rivals = ["policy=linux", "policy=nice", "policy=fifo"].map(rival);
                    let contenders = join([self.ours("full", &[burst, session, by]), join(rivals)]);
                    cells.push(Cell { vps: own_cores().len(), contenders });
                }
            }
        }
        cells
    }

    pub(super) fn inversion(&self) -> Vec<Cell> {
        let ours = ["inherit=on", "inherit=off"].map(|inherit| self.ours("full", &[inherit]));
        vec![Cell { vps: INVERSION_CORES, contenders: join(ours) }]
    }
}

impl Calls<'_> {
    /// All keys are in every row, even if only one value makes sense.
    fn args(self, placement: &str, callers_as: &str, by: &str) -> Vec<String> {
        let Calls { callers, bytes, check, .. } = self;
        [
            format!("callers={callers}"),
            format!("bytes={bytes}"),
            format!("placement={placement}"),
            format!("check={check}"),
            format!("by={by}"),
            format!("as={callers_as}"),
        ]
        .into()
    }

    fn ours(self, placement: &str) -> Contender {
        self.ours_by(placement, if self.bytes > INLINE { "region" } else { "copy" })
    }

    fn ours_by(self, placement: &str, by: &str) -> Contender {
        let args = self.args(placement, "microprocesses", by);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        self.plan.ours("full", &args).remove(0)
    }

    fn rival(self, transport: &str, placement: &str, callers_as: &str) -> Vec<Contender> {
        let mut args = self.args(placement, callers_as, "copy");
        args.push(format!("transport={transport}"));
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        self.plan.rival(Runtime::Rpc, &args, usize::MAX)
    }

    fn contenders(self, full: bool) -> Vec<Contender> {
        let null = self.callers == 1 && self.bytes == 64;
        let when =
            |wanted: bool, who: Vec<Contender>| if full || wanted { who } else { Vec::new() };
        let scheduled = |transport, callers_as| self.rival(transport, "scheduled", callers_as);
        // Two spinning processes need a core each.
        let can_spin = self.cores > 1 && self.callers == 1;
        let spinning = |who: Vec<Contender>| if can_spin { who } else { Vec::new() };
        let iceoryx =
            |who: Vec<Contender>| if self.callers <= ICEORYX_CALLERS { who } else { Vec::new() };
        let many = self.callers == 64 && self.bytes == 64;
        join([
            vec![self.ours("adaptive")],
            when(null, vec![self.ours("handoff"), self.ours("scheduled")]),
            when(null, spinning(vec![self.ours("spin")])),
            scheduled("unix-socket", "threads"),
            when(many, scheduled("unix-mux", "threads")),
            when(many, scheduled("unix-mux-states", "states")),
            when(null, scheduled("pipe", "threads")),
            when(null, scheduled("futex", "threads")),
            when(null, spinning(self.rival("futex", "spin", "threads"))),
            when(null, scheduled("grpc-uds", "futures")),
            when(null, scheduled("tarpc", "futures")),
            when(null, iceoryx(scheduled("iceoryx2", "threads"))),
            when(null, spinning(iceoryx(self.rival("iceoryx2", "spin", "threads")))),
            when(null, scheduled("dbus", "futures")),
        ])
    }

    fn unread(self) -> Vec<Contender> {
        let scheduled = |transport| self.rival(transport, "scheduled", "threads");
        join([
            vec![self.ours_by("adaptive", "region")],
            scheduled("unix-socket"),
            scheduled("futex"),
            scheduled("iceoryx2"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, cells};
    use super::*;

    fn contenders(bench: &str, full: bool) -> Vec<Contender> {
        let options =
            Options { vps: vec![1, 2], rivals: true, full, runs: 1, queue: "ring".into(), seed: 1 };
        cells(bench, &options).into_iter().flat_map(|cell| cell.contenders).collect()
    }

    #[test]
    fn every_row_of_calls_has_every_key() {
        for contender in contenders("rpc", true) {
            for key in ["callers", "bytes", "placement", "check", "by", "as"] {
                assert!(contender.value(key).is_some(), "{key}: {contender:?}");
            }
            assert_eq!(contender.value("transport").is_some(), contender.runtime == Runtime::Rpc);
        }
    }

    #[test]
    fn gates_and_the_socket_are_measured_in_every_cell_of_the_figures() {
        let all = contenders("rpc", false);
        let of = |is: &dyn Fn(&Contender) -> bool| {
            all.iter().filter(|c| c.value("check") == Some("whole") && is(c)).count()
        };
        assert_eq!(of(&|c| c.value("placement") == Some("adaptive")), 18);
        assert_eq!(of(&|c| c.value("transport") == Some("unix-socket")), 18);
        assert_eq!(of(&|c| c.value("placement") == Some("spin")), 3);
        assert!(contenders("rpc", true).len() > 4 * all.len());
        assert_eq!(
            [contenders("priority", false).len(), contenders("priority", true).len()],
            [16, 32]
        );
    }
}
