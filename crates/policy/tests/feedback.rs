//! Feedback, called directly and driven by a simulated virtual processor.

use std::time::Duration;

use kumihimo_policy::{Feedback, Info, Placement, Policy, Priority, Why};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Returns `info` after it was placed and ran for `ran`.
fn after(mut info: Info, placed: Placement, ran: Duration) -> Info {
    info.level = placed.level;
    info.quantum = placed.quantum;
    info.ran = ran;
    info.now_ns += ran.as_nanos() as u64;
    info
}

fn delay(info: &Info, placed: Placement) -> u64 {
    placed.key.expect("always keyed") - info.now_ns
}

/// A microprocess that yields to a higher level has not used its quantum up.
#[test]
fn outranked_microprocess_keeps_its_depth() {
    let policy = Feedback::new();
    let mut info = Info::new(1, Priority::DEFAULT);
    let placed = policy.place(&info, Why::Spawned);
    info = after(info, placed, placed.quantum / 2);
    assert_eq!(policy.place(&info, Why::Outranked).quantum, placed.quantum);
}

#[test]
fn whole_quanta_sink_to_the_bottom_and_stay_there() {
    let policy = Feedback::new();
    let mut info = Info::new(1, Priority::DEFAULT);
    let mut placed = policy.place(&info, Why::Spawned);
    assert_eq!((placed.quantum, delay(&info, placed)), (Duration::from_millis(2), 0));
    for depth in [1, 2, 3, 4, 4, 4] {
        info = after(info, placed, placed.quantum);
        placed = policy.place(&info, Why::QuantumOver);
        assert_eq!(placed.quantum, Duration::from_millis(2 << depth));
        assert_eq!(delay(&info, placed), 20 * depth * MS);
    }
}

#[test]
fn waiting_microprocess_rises_and_waiting_computation_does_not() {
    let policy = Feedback::new();
    let mut info = Info::new(1, Priority::DEFAULT);
    info.quantum = Duration::from_millis(32);
    for quantum in [16, 8, 4, 2, 2] {
        info.ran = info.quantum / 10;
        info.quantum = policy.place(&info, Why::Woken).quantum;
        assert_eq!(info.quantum, Duration::from_millis(quantum));
    }
    info.quantum = Duration::from_millis(32);
    info.ran = info.quantum / 3;
    assert_eq!(policy.place(&info, Why::Woken).quantum, info.quantum);
}

#[test]
fn yielding_just_before_the_end_gains_nothing() {
    let policy = Feedback::new();
    let mut info = Info::new(1, Priority::DEFAULT);
    info.quantum = policy.place(&info, Why::Spawned).quantum;
    info.ran = info.quantum - Duration::from_nanos(1);
    assert!(policy.place(&info, Why::Yielded).quantum > info.quantum);
    info.ran = info.quantum / 3;
    assert_eq!(policy.place(&info, Why::Yielded).quantum, info.quantum);
}

#[test]
fn change_of_priority_keeps_the_depth() {
    let policy = Feedback::new();
    let mut info = Info::new(1, Priority::LOWEST);
    info.quantum = Duration::from_millis(8);
    info.inherited = Some(Priority::HIGHEST);
    let placed = policy.place(&info, Why::Reprioritised);
    assert_eq!((placed.level, placed.quantum), (63, Duration::from_millis(8)));
}

#[test]
fn absurd_quanta_are_bounded() {
    for (first, delay) in [(Duration::ZERO, Duration::ZERO), (Duration::MAX, Duration::MAX)] {
        let policy = Feedback::with_quantum(first, delay);
        let mut info = Info::new(1, Priority::DEFAULT);
        info.now_ns = u64::MAX;
        for _ in 0..10 {
            let placed = policy.place(&info, Why::QuantumOver);
            assert!(!placed.quantum.is_zero() && placed.key == Some(u64::MAX));
            info.quantum = placed.quantum;
        }
    }
}

/// The behaviour of a simulated microprocess: it runs for `run`, then waits for `wait`, repeatedly.
#[derive(Clone, Debug)]
struct Load {
    run: u64,
    wait: u64,
}

#[derive(Debug, Default)]
struct Seen {
    ran: u64,
    /// The longest time between becoming runnable and running.
    longest_delay: u64,
}

/// Simulates one virtual processor under `policy`, with microprocesses of one priority, for `until`
/// ns.
fn simulate(policy: &impl Policy, loads: &[Load], until: u64) -> Vec<Seen> {
    struct One {
        info: Info,
        left: u64,
        key: u64,
        since: u64,
        /// The time until which it sleeps.
        wakes: Option<u64>,
    }
    let mut now = 0;
    let mut seen: Vec<Seen> = loads.iter().map(|_| Seen::default()).collect();
    let place = |one: &mut One, why, now| {
        one.info.now_ns = now;
        let placed = policy.place(&one.info, why);
        (one.info.level, one.info.quantum, one.info.ran) =
            (placed.level, placed.quantum, Duration::ZERO);
        (one.key, one.since, one.wakes) = (placed.key.unwrap(), now, None);
    };
    let mut all: Vec<One> = (0..loads.len())
        .map(|i| {
            let info = Info::new(i as u64 + 1, Priority::DEFAULT);
            let mut one = One { info, left: loads[i].run, key: 0, since: 0, wakes: None };
            place(&mut one, Why::Spawned, 0);
            one
        })
        .collect();
    while now < until {
        for one in &mut all {
            if let Some(at) = one.wakes.filter(|&at| at <= now) {
                place(one, Why::Woken, at);
            }
        }
        let Some(i) = (0..all.len())
            .filter(|&i| all[i].wakes.is_none())
            .min_by_key(|&i| (all[i].key, all[i].since))
        else {
            now = all.iter().filter_map(|o| o.wakes).min().unwrap();
            continue;
        };
        let one = &mut all[i];
        seen[i].longest_delay = seen[i].longest_delay.max(now - one.since);
        let slice = one.left.min(one.info.quantum.as_nanos() as u64);
        now += slice;
        seen[i].ran += slice;
        one.left -= slice;
        one.info.ran = Duration::from_nanos(slice);
        if one.left == 0 {
            one.left = loads[i].run;
            one.wakes = Some(now + loads[i].wait);
        } else {
            place(one, Why::QuantumOver, now);
        }
    }
    seen
}

#[test]
fn interactive_microprocess_runs_before_computations() {
    // Four endless computations, and one microprocess that runs 0.1 ms every 5 ms.
    let mut loads = vec![Load { run: u64::MAX / 2, wait: 0 }; 4];
    loads.push(Load { run: MS / 10, wait: 5 * MS });
    let seen = simulate(&Feedback::new(), &loads, 10_000 * MS);
    // It may have to wait for one running computation, for one quantum at most.
    assert!(seen[4].longest_delay <= 32 * MS, "{seen:?}");
    // The computations share the remaining time evenly.
    let (least, most) =
        (seen[..4].iter().map(|s| s.ran).min(), seen[..4].iter().map(|s| s.ran).max());
    assert!(most.unwrap() - least.unwrap() <= 64 * MS, "{seen:?}");
}

#[test]
fn many_short_microprocesses_do_not_starve_a_computation() {
    // Together the short microprocesses demand 150 % of the processor, and each of them always
    // rises.
    let mut loads = vec![Load { run: MS / 4, wait: 5 * MS }; 30];
    loads.push(Load { run: u64::MAX / 2, wait: 0 });
    let seen = simulate(&Feedback::new(), &loads, 10_000 * MS);
    assert!(seen[30].ran > 1_000 * MS, "{:?}", seen[30]);
    assert!(seen[30].longest_delay <= 4 * 20 * MS + 31 * 2 * MS, "{:?}", seen[30]);
}

prop_compose! {
    fn any_info()(
        id in 1u64..,
        own in 0u8..64,
        inherited in proptest::option::of(0u8..64),
        level in any::<u8>(),
        quantum in 0u64..100 * MS,
        ran in 0u64..1000 * MS,
        now in any::<u64>(),
    ) -> Info {
        let mut info = Info::new(id, Priority::new(own).unwrap());
        info.inherited = inherited.map(|p| Priority::new(p).unwrap());
        info.level = level;
        info.quantum = Duration::from_nanos(quantum);
        info.ran = Duration::from_nanos(ran);
        info.now_ns = now;
        info
    }
}

fn any_why() -> impl Strategy<Value = Why> {
    prop_oneof![
        Just(Why::Spawned),
        Just(Why::Woken),
        Just(Why::Yielded),
        Just(Why::QuantumOver),
        Just(Why::Reprioritised)
    ]
}

proptest! {
    /// Priorities stay strict, the quantum is one of the five, and the delay belongs to it.
    #[test]
    fn placements_are_in_range(info in any_info(), why in any_why()) {
        let placed = Feedback::new().place(&info, why);
        prop_assert_eq!(placed.level, info.effective().get());
        let depth = (0..Feedback::DEPTHS).find(|&d| placed.quantum == Duration::from_millis(2 << d));
        prop_assert!(depth.is_some());
        let delay = 20 * MS * u64::from(depth.unwrap());
        prop_assert_eq!(placed.key, Some(info.now_ns.saturating_add(delay)));
        prop_assert_eq!(placed, Feedback::new().place(&info, why));
    }

    /// A longer run never gives a better place.
    #[test]
    fn running_longer_never_pays(info in any_info(), why in any_why(), more in 0u64..1000 * MS) {
        let mut longer = info;
        longer.ran += Duration::from_nanos(more);
        let (a, b) = (Feedback::new().place(&info, why), Feedback::new().place(&longer, why));
        prop_assert!(a.key <= b.key);
    }

    /// With any mix of loads, a runnable microprocess runs within the largest delay plus one
    /// quantum of each microprocess whose key can be smaller.
    #[test]
    fn no_microprocess_starves(
        loads in proptest::collection::vec((1u64..200, 0u64..50), 2..20)
    ) {
        let loads: Vec<_> = loads.into_iter().map(|(run, wait)| Load { run: run * MS / 4, wait: wait * MS }).collect();
        let seen = simulate(&Feedback::new(), &loads, 3_000 * MS);
        // In the 80 ms until even newcomers queue behind it, 80 ms of work is done. Each other
        // microprocess may still run for one quantum before it.
        let bound = 80 * MS + 32 * MS * loads.len() as u64;
        for one in &seen {
            prop_assert!(one.longest_delay <= bound, "{} > {bound}", one.longest_delay);
            prop_assert!(one.ran > 0);
        }
    }
}
