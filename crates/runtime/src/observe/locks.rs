//! Report of locks: for each lock its holder and its waiters, and the chains and cycles among the
//! microprocesses that wait for each other.

use std::cmp::Reverse;
use std::collections::HashMap;

use kumihimo_machine::locks::{
    Because, Chain, LISTED_WAITERS, Link, Lock, LockTotals, LockWaiter, Locks,
};
use kumihimo_resource::id::Id;

use crate::kernel_thread::gs_record;
use crate::memory::pool;
use crate::microprocess::identity;
use crate::microprocess::lock_layout;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::{self, Wait};
use crate::observe::holders::{self, Held, Holders, Waiting};
use crate::observe::wait_graph;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::thread_place;

/// Largest number of cycles that are looked for.
const MOST_CYCLES: usize = 1000;

/// Returns the locks for which microprocesses wait, with holders and waiters, and the chains and
/// cycles among the waiters. Empty without a runtime, and where microprocesses are kernel threads.
///
/// The locks are those of `kumihimo::sync` and, under `kumi run`, of the C library. The
/// holder is unknown for semaphores, spinlocks and futexes, which record none. Of the readers that
/// hold a readers-writer lock only the number is recorded. The program continues meanwhile, so each
/// line is right for the moment at which it was read. Cycles are confirmed.
///
/// Costs a locker nothing. The call passes over all microprocesses and makes a system call for each
/// lock that microprocesses wait for.
///
/// # Examples
///
/// ```
/// use kumihimo::observe::{self, Holder};
/// use kumihimo::sync::Mutex;
/// use kumihimo::thread;
///
/// let mutex = Mutex::new(());
/// thread::scope(|scope| {
///     let holder = scope.spawn(|| {
///         let _guard = mutex.lock().unwrap();
///         thread::park();
///     });
///     while mutex.try_lock().is_ok() {
///         thread::yield_now();
///     }
///     scope.spawn(|| drop(mutex.lock()));
///     let lock = loop {
///         match observe::locks().locks.pop() {
///             Some(lock) => break lock,
///             None => thread::yield_now(),
///         }
///     };
///     assert_eq!(lock.address as usize, (&raw const mutex).addr());
///     let id = holder.thread().id().resource().expect("it is a microprocess");
///     assert_eq!(lock.holder, Holder::Microprocess { id, name: None });
///     assert_eq!(lock.holder_does.as_deref(), Some("waits for an unpark"));
///     holder.thread().unpark();
/// });
/// ```
#[must_use]
pub fn locks() -> Locks {
    Snapshot::take().map_or_else(Locks::default, |seen| seen.report(usize::MAX))
}

/// A microprocess or kernel thread of the graph.
#[derive(Clone, Copy)]
enum Node {
    /// A microprocess that waits, by its place in [`Snapshot::waits`].
    Waiting(usize),
    /// A microprocess that does not wait.
    Microprocess(Ref),
    KernelThread(i32),
}

/// Nodes that do not wait, by the ID of the microprocess or of the kernel thread.
#[derive(Default)]
struct NotWaiting {
    microprocesses: HashMap<u64, usize>,
    kernel_threads: HashMap<i32, usize>,
}

/// All waits of a moment, as a graph.
pub(crate) struct Snapshot {
    now: u64,
    waits: Vec<Waiting>,
    holders: Holders,
    /// The waits first, in their order.
    nodes: Vec<Node>,
    /// For each node the nodes that it waits for.
    graph: Vec<Vec<usize>>,
    /// Cycles, as nodes.
    cycles: Vec<Vec<usize>>,
}

impl Snapshot {
    /// Reads all waits. `None` without a runtime that has microprocesses.
    pub(crate) fn take() -> Option<Snapshot> {
        if Instance::one_to_one() {
            return None;
        }
        let now = instance::visit(|instance| instance.map(Instance::now))?;
        let waits = holders::waiting();
        let holders = Holders::of(&waits);
        let mut seen = Snapshot {
            now,
            nodes: (0..waits.len()).map(Node::Waiting).collect(),
            graph: vec![Vec::new(); waits.len()],
            waits,
            holders,
            cycles: Vec::new(),
        };
        seen.connect();
        let cycles = wait_graph::cycles(&seen.graph, MOST_CYCLES);
        seen.cycles = seen.confirmed(cycles);
        Some(seen)
    }

    /// Adds the edges of the graph.
    fn connect(&mut self) {
        let waiting: HashMap<u64, usize> =
            self.waits.iter().zip(0..).map(|(one, at)| (one.who.id(), at)).collect();
        let children = self.children();
        let mut others = NotWaiting::default();
        for at in 0..self.waits.len() {
            let found = match self.waits[at].wait {
                Wait::Join(id) => self.edges(living(id), &waiting, &mut others),
                Wait::Scope(scope) => {
                    let children = children.get(&scope).into_iter().flatten().copied();
                    self.edges(children, &waiting, &mut others)
                }
                wait => match self.holders.get(wait) {
                    // It was handed the mutex, and is about to be woken: locking one's own mutex
                    // panics. A mutex of the C library is handed to nobody, so a thread that waits
                    // for its own does so for ever.
                    Some(Held::By(who))
                        if who == self.waits[at].who && !lock_layout::is_of_c_library(wait) =>
                    {
                        continue;
                    }
                    Some(Held::By(who)) => self.edges([who], &waiting, &mut others),
                    Some(Held::ByThread(thread)) => {
                        let known = others.kernel_threads.entry(thread);
                        vec![*known.or_insert_with(|| self.add(Node::KernelThread(thread)))]
                    }
                    _ => continue,
                },
            };
            self.graph[at] = found;
        }
    }

    fn edges(
        &mut self,
        to: impl IntoIterator<Item = Ref>,
        waiting: &HashMap<u64, usize>,
        others: &mut NotWaiting,
    ) -> Vec<usize> {
        let node = |who: Ref| match waiting.get(&who.id()) {
            Some(at) => *at,
            None => {
                let known = others.microprocesses.entry(who.id());
                *known.or_insert_with(|| self.add(Node::Microprocess(who)))
            }
        };
        to.into_iter().map(node).collect()
    }

    /// Adds a node that waits for no other.
    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.graph.push(Vec::new());
        self.nodes.len() - 1
    }

    /// Returns the living children of the scopes for which microprocesses wait.
    fn children(&self) -> HashMap<usize, Vec<Ref>> {
        let scopes = self.waits.iter().filter_map(|one| match one.wait {
            Wait::Scope(scope) if scope != 0 => Some((scope, Vec::new())),
            _ => None,
        });
        let mut children: HashMap<usize, Vec<Ref>> = scopes.collect();
        if !children.is_empty() {
            pool::for_each(|mp| {
                if let Some(scope) = mp.scope()
                    && let Some(children) = children.get_mut(&scope.addr().get())
                    && mp.reference().is_alive()
                {
                    children.push(mp.reference());
                }
            });
        }
        children
    }

    /// Returns the cycles whose members still wait for each other.
    ///
    /// The edges were read one after the other, so a cycle in the graph may never have existed. The
    /// second reading begins after the first one has ended. A member that waited all the time from
    /// its first reading to its second one waited at the moment between the two. It neither locked
    /// nor unlocked then, and a lock that it held at both readings it held at that moment.
    fn confirmed(&self, mut cycles: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
        let is_waiting = |node: &usize| *node < self.waits.len();
        cycles.retain(|cycle| cycle.iter().all(is_waiting));
        let members = cycles.iter().flatten().map(|node| &self.waits[*node]);
        let again = Holders::of(members);
        cycles.retain(|cycle| {
            let following = cycle.iter().cycle().skip(1);
            cycle.iter().zip(following).all(|(one, next)| {
                let (one, next) = (&self.waits[*one], &self.waits[*next]);
                let is_edge = match one.wait {
                    Wait::Join(id) => next.who.id() == id,
                    Wait::Scope(scope) => {
                        next.who.mp.scope().is_some_and(|of| of.addr().get() == scope)
                    }
                    wait => again.get(wait) == Some(Held::By(next.who)),
                };
                is_edge && one.is_same()
            })
        });
        cycles
    }

    /// Returns all waits.
    pub(crate) fn waiting(&self) -> &[Waiting] {
        &self.waits
    }

    /// Returns the holder of the lock that `wait` is for, if it is for a lock.
    pub(crate) fn holder(&self, wait: Wait) -> Option<Held> {
        self.holders.get(wait)
    }

    /// Returns the confirmed cycles.
    pub(crate) fn cycles(&self) -> impl Iterator<Item = Chain> + '_ {
        self.cycles.iter().map(|cycle| self.describe(cycle, true, 0))
    }

    /// Makes the report with `most` locks and `most` chains.
    pub(crate) fn report(&self, most: usize) -> Locks {
        let mut report = Locks::default();
        self.report_locks(most, &mut report);
        self.report_chains(most, &mut report);
        report
    }

    fn report_locks(&self, most: usize, report: &mut Locks) {
        let mut locks: HashMap<(u8, usize), Vec<&Waiting>> = HashMap::new();
        for one in self.waits.iter().filter(|one| lock_layout::is_lock(one.wait)) {
            locks.entry(one.wait.encode()).or_default().push(one);
        }
        report.totals.locks = locks.len() as u64;
        report.totals.waiters = locks.values().map(|waiters| waiters.len() as u64).sum();
        let mut locks: Vec<_> = locks.into_values().collect();
        let longest = |waiters: &Vec<&Waiting>| waiters.iter().map(|one| one.since).min();
        locks.sort_by_cached_key(|waiters| (Reverse(waiters.len()), longest(waiters)));
        for mut waiters in locks.into_iter().take(most) {
            waiters.sort_by_key(|one| one.since);
            report.locks.extend(self.describe_lock(&waiters));
        }
    }

    /// Describes the lock with these waiters, the first one of which has waited longest.
    fn describe_lock(&self, waiters: &[&Waiting]) -> Option<Lock> {
        let first = waiters.first()?;
        let (kind, address) = first.wait.encode();
        let held = self.holders.get(first.wait).unwrap_or(Held::Unknown);
        let holder_does = match held {
            Held::By(who) => does(who),
            _ => None,
        };
        let listed = waiters.iter().take(LISTED_WAITERS).filter_map(|one| {
            Some(LockWaiter {
                id: Id::from_bits(one.who.id())?,
                name: holders::name(one.who),
                waiting_ns: self.waited(one),
                is_timed: one.is_timed,
            })
        });
        Some(Lock {
            kind: wait_reason::kind_name(kind).to_owned(),
            address: address as u64,
            holder: held.describe(),
            holder_does,
            waiters: waiters.len() as u64,
            longest_ns: self.waited(first),
            first: listed.collect(),
        })
    }

    fn waited(&self, one: &Waiting) -> u64 {
        self.now.saturating_sub(one.since)
    }

    fn report_chains(&self, most: usize, report: &mut Locks) {
        let totals: &mut LockTotals = &mut report.totals;
        totals.cycles = self.cycles.len() as u64;
        report.chains.extend(self.cycles().take(most));
        let mut is_waited_for = vec![false; self.graph.len()];
        self.graph.iter().flatten().for_each(|node| is_waited_for[*node] = true);
        let mut is_in_cycle = vec![false; self.graph.len()];
        self.cycles.iter().flatten().for_each(|node| is_in_cycle[*node] = true);
        // One chain for each object that the first members wait for, from the one that has waited
        // longest, with the number of the others.
        let mut first: HashMap<(u8, usize), (usize, u64)> = HashMap::new();
        for (at, one) in self.waits.iter().enumerate() {
            // A microprocess that waits for one that does not wait is no chain.
            let is_long = self.graph[at].iter().any(|node| !self.graph[*node].is_empty());
            if is_waited_for[at] || !is_long {
                continue;
            }
            let (place, others) = first.entry(one.wait.encode()).or_insert((at, u64::MAX));
            *others = others.wrapping_add(1);
            if one.since < self.waits[*place].since {
                *place = at;
            }
        }
        totals.chains = first.len() as u64;
        let mut first: Vec<(usize, u64)> = first.into_values().collect();
        first.sort_by_key(|(at, _)| self.waits[*at].since);
        for (at, others) in first.into_iter().take(most.saturating_sub(report.chains.len())) {
            let chain = wait_graph::chain(&self.graph, at, |node| is_in_cycle[node]);
            report.chains.push(self.describe(&chain, false, others));
        }
    }

    /// Describes a chain or a cycle of nodes.
    fn describe(&self, nodes: &[usize], is_cycle: bool, others: u64) -> Chain {
        let links = nodes.iter().map(|node| match self.nodes[*node] {
            Node::Waiting(at) => self.waiting_link(&self.waits[at]),
            Node::Microprocess(who) => Link {
                name: holders::name(who),
                ..last_link(who.id(), does(who).unwrap_or_else(|| "has ended".to_owned()))
            },
            Node::KernelThread(thread) => Link {
                kernel_thread: Some(thread),
                ..last_link(0, "is no microprocess".to_owned())
            },
        });
        Chain { is_cycle, links: links.collect(), others }
    }

    fn waiting_link(&self, one: &Waiting) -> Link {
        Link {
            name: holders::name(one.who),
            waiting_ns: Some(self.waited(one)),
            is_timed: one.is_timed,
            because: match one.wait {
                Wait::Join(_) => Because::End,
                Wait::Scope(_) => Because::Child,
                wait if lock_layout::is_lock(wait) => Because::Holds,
                _ => Because::Unknown,
            },
            ..last_link(one.who.id(), waits_for(one.who, one.wait))
        }
    }
}

/// Returns a link that waits for no other.
fn last_link(id: u64, does: String) -> Link {
    Link {
        id: Id::from_bits(id),
        name: None,
        kernel_thread: None,
        does,
        waiting_ns: None,
        is_timed: false,
        because: Because::Unknown,
    }
}

/// Returns the living microprocess with this ID.
fn living(id: u64) -> Option<Ref> {
    identity::find(id).map(Mp::reference).filter(|who| who.id() == id && who.is_alive())
}

fn waits_for(who: Ref, wait: Wait) -> String {
    if who.mp.state.is_suspended() {
        format!("is suspended, and waits for {wait}")
    } else {
        format!("waits for {wait}")
    }
}

/// Returns what a microprocess does, as the rest of a sentence: `is queued`. `None` if it has
/// ended.
fn does(who: Ref) -> Option<String> {
    let suspended = who.mp.state.is_suspended();
    let text = match who.mp.state.phase() {
        Phase::Parked => match who.mp.waits_for() {
            Some(wait) => waits_for(who, wait),
            None => "waits".to_owned(),
        },
        Phase::Suspended => "is suspended".to_owned(),
        // The caller is in a system call that looks for it.
        Phase::Live if gs_record::current_mp().is_some_and(|own| own.reference() == who) => {
            "runs".to_owned()
        }
        Phase::Live => {
            let place = instance::visit(|instance| thread_place::on(instance?, who));
            match place.map(|place| (place.vp, place.call)) {
                Some((_, Some(-1))) => "is stopped on its kernel thread".to_owned(),
                Some((_, Some(call))) => format!("is blocked in system call {call}"),
                Some((Some(vp), None)) => format!("runs on VP {vp}"),
                Some((None, None)) => "runs without a VP".to_owned(),
                None if suspended => "is suspended".to_owned(),
                None => "is queued".to_owned(),
            }
        }
        Phase::Free | Phase::Done | Phase::Abandoned => return None,
    };
    who.is_current().then_some(text)
}
