//! The policies that use only the priority, and policies as values.

use std::sync::Arc;
use std::time::Duration;

use kumihimo_policy::{
    Feedback, FixedPriority, Info, Placement, Policy, Priority, RoundRobin, Why,
};

const ALL: [Why; 5] =
    [Why::Spawned, Why::Woken, Why::Yielded, Why::QuantumOver, Why::Reprioritised];

#[test]
fn level_always_equals_the_effective_priority() {
    for level in 0..64 {
        for inherited in [None, Some(0), Some(40), Some(63)] {
            let mut info = Info::new(7, Priority::new(level).unwrap());
            info.inherited = inherited.map(|p| Priority::new(p).unwrap());
            // A static policy ignores everything but the priority.
            info.level = 63 - level;
            info.ran = Duration::from_secs(1);
            info.now_ns = u64::MAX;
            let level = level.max(inherited.unwrap_or(0));
            for why in ALL {
                let fixed = FixedPriority.place(&info, why);
                assert_eq!(fixed, Placement { level, quantum: Duration::MAX, key: None });
                let turns = RoundRobin::new().place(&info, why);
                assert_eq!(turns, Placement { level, quantum: RoundRobin::QUANTUM, key: None });
            }
        }
    }
    assert!(
        FixedPriority.is_static() && RoundRobin::new().is_static() && !Feedback::new().is_static()
    );
}

#[test]
fn quantum_can_be_set() {
    let policy = RoundRobin::with_quantum(Duration::ZERO);
    assert_eq!(
        policy.place(&Info::new(1, Priority::DEFAULT), Why::Spawned).quantum,
        Duration::ZERO
    );
    assert_eq!(RoundRobin::default(), RoundRobin::new());
}

#[test]
fn boxed_and_shared_policies_are_policies() {
    fn name(p: impl Policy) -> String {
        format!("{} {}", p.name(), p.is_static())
    }
    assert_eq!(name(Box::new(FixedPriority) as Box<dyn Policy>), "fixed true");
    assert_eq!(name(Arc::new(RoundRobin::new()) as Arc<dyn Policy>), "round-robin true");
    assert_eq!(name(Box::new(Feedback::new())), "feedback false");
}

/// A policy may ignore priorities: the worst effect is a bad choice.
#[test]
fn application_can_define_a_policy() {
    struct ById;
    impl Policy for ById {
        fn name(&self) -> &str {
            "by id"
        }
        fn place(&self, info: &Info, _: Why) -> Placement {
            Placement { level: 0, quantum: Duration::ZERO, key: Some(info.id) }
        }
    }
    let policy: Box<dyn Policy> = Box::new(ById);
    assert_eq!(policy.place(&Info::new(9, Priority::DEFAULT), Why::Woken).key, Some(9));
}
