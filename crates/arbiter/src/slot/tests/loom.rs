//! loom models of a slot's protocol.

use super::*;
use crate::row::SleepMode;
use ::loom::sync::Arc;

/// Requests the core as a VP does, and prepares to sleep if it must wait. Returns whether it has
/// the core.
fn wants(core: &SlotProtocol<'_, Rows>, me: VpId, mark: Mark) -> bool {
    if core.enter(me, mark, true).is_ok() {
        return true;
    }
    core.places.cell(me).prepare_sleep(SleepMode::Futex);
    if core.slot.load().holder() == Some(me) {
        core.places.cell(me).finish_sleep();
        return true;
    }
    false
}

struct World {
    slot: Slot,
    rows: Rows,
}

impl World {
    fn new(rows: usize) -> Arc<World> {
        Arc::new(World { slot: Slot::new(), rows: Rows::new(rows) })
    }

    fn core(&self) -> SlotProtocol<'_, Rows> {
        SlotProtocol { slot: &self.slot, number: 0, places: &self.rows }
    }

    fn was_called(&self, who: u16) -> bool {
        self.rows.called[usize::from(who)].load(Ordering::Relaxed) != 0
    }
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// The holder leaves while another VP prepares to sleep. That VP finds the core free, is given it
/// and woken, or has it before it sleeps.
#[test]
fn waiter_is_woken_or_has_the_core() {
    model(3, || {
        let world = World::new(2);
        assert!(world.core().enter(row(0), Mark::of(5), true).is_ok());
        let waiter = {
            let world = world.clone();
            ::loom::thread::spawn(move || wants(&world.core(), row(1), Mark::of(5)))
        };
        world.core().leave(row(0), true, || ());
        let up = waiter.join().unwrap();
        assert_eq!(world.slot.load().holder(), Some(row(1)));
        assert!(up || world.was_called(1), "asleep although it has the core");
    });
}

/// A waiter withdraws while it is given the core: the core does not stay with it.
#[test]
fn core_does_not_stay_with_withdrawn_waiter() {
    model(3, || {
        let world = World::new(2);
        assert!(world.core().enter(row(0), Mark::of(5), true).is_ok());
        assert!(world.core().enter(row(1), Mark::of(4), true).is_err());
        let waiter = {
            let world = world.clone();
            ::loom::thread::spawn(move || world.core().leave(row(1), true, || ()))
        };
        world.core().leave(row(0), true, || ());
        waiter.join().unwrap();
        assert_eq!(world.slot.load().holder(), None);
    });
}

/// The holder leaves and two VPs of different levels arrive: the higher VP ends up with the core,
/// and the lower VP waits or was displaced.
#[test]
fn higher_of_two_arrivals_has_the_core() {
    model(2, || {
        let world = World::new(3);
        assert!(world.core().enter(row(0), Mark::of(9), true).is_ok());
        let comers: Vec<_> = [(1, 4), (2, 7)]
            .into_iter()
            .map(|(who, level)| {
                let world = world.clone();
                ::loom::thread::spawn(move || wants(&world.core(), row(who), Mark::of(level)))
            })
            .collect();
        world.core().leave(row(0), true, || ());
        let ups: Vec<bool> = comers.into_iter().map(|comer| comer.join().unwrap()).collect();
        assert_eq!(world.slot.load().held(), Some((row(2), Mark::of(7))));
        assert!(ups[1] || world.was_called(2));
        let lower_is_notified = !ups[0] || world.rows.was_displaced(1);
        assert!(lower_is_notified, "the lower VP runs on without a notification");
    });
}

/// A waiter accepts the core while the holder is evicted: it has the core, and is not asleep
/// without a wake-up.
#[test]
fn eviction_loses_no_waiter() {
    model(3, || {
        let world = World::new(2);
        assert!(world.core().enter(row(0), Mark::of(5), true).is_ok());
        let waiter = {
            let world = world.clone();
            ::loom::thread::spawn(move || wants(&world.core(), row(1), Mark::of(3)))
        };
        world.core().evict(world.slot.load());
        let up = waiter.join().unwrap();
        assert_eq!(world.slot.load().holder(), Some(row(1)));
        assert!(up || world.was_called(1));
    });
}
