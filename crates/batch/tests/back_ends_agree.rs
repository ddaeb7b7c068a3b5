//! Random programs of system calls have the same results on every back end and in every order.

mod resident;
mod world;

use kumihimo_batch::order::{FIRST_COME, Order};
use kumihimo_batch::{Backend, Batch, LARGEST, Plain, Uring};
use proptest::prelude::*;
use world::{World, step};

fn batch(backend: impl Backend + 'static, order: Order) -> Batch {
    let mut batch = Batch::new(Box::new(backend));
    batch.order = order;
    batch
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares outcomes, error numbers, received bytes and file contents.
    #[test]
    fn random_programs_have_equal_results_on_both_back_ends(
        batches in prop::collection::vec(prop::collection::vec(step(), 1..LARGEST), 1..5),
        levels in prop::collection::vec(0u8..3, 1..5),
        by_content in any::<bool>(),
        by_priority in any::<bool>(),
    ) {
        let Ok(uring) = Uring::new(LARGEST as u32) else {
            println!("skipped: no uring here");
            return Ok(());
        };
        let order = Order { by_priority, by_content };
        let (mut one, mut other) = (batch(uring, order), batch(Plain, order));
        let (mut with, mut without) = (World::new(), World::new());
        for steps in &batches {
            prop_assert_eq!(with.run(&mut one, steps, &levels), without.run(&mut other, steps, &levels));
        }
        prop_assert_eq!(with.rest(), without.rest());
    }

    /// Each call is a batch of its own: both back ends return the result of the system call.
    #[test]
    fn batch_of_one_equals_the_plain_call(steps in prop::collection::vec(step(), 1..40)) {
        let Ok(uring) = Uring::new(LARGEST as u32) else { return Ok(()) };
        let (mut one, mut other) = (batch(uring, Order::default()), batch(Plain, FIRST_COME));
        let (mut with, mut without) = (World::new(), World::new());
        for step in &steps {
            let step = std::slice::from_ref(step);
            prop_assert_eq!(with.run(&mut one, step, &[0]), without.run(&mut other, step, &[0]));
        }
        prop_assert_eq!(with.rest(), without.rest());
    }
}

#[test]
fn batch_larger_than_the_ring_completes() {
    let Ok(uring) = Uring::new(4) else { return println!("skipped: no uring here") };
    let mut batch = batch(uring, Order::default());
    let mut world = World::new();
    let steps = vec![world::Step::Nop; 64];
    assert!(world.run(&mut batch, &steps, &[0]).iter().all(|seen| seen.0 == Ok(0)));
}
