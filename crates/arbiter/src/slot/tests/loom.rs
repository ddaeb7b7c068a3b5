//! Models of the protocol of a slot.

use super::*;
use crate::row::SleepMode;
use ::loom::sync::Arc;

/// What a VP does that wants the core, and lies down if it cannot have it. True: it has it.
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

/// The holder leaves while another one lies down: that one sees the core free, is given it and
/// called, or has it before it sleeps.
#[test]
fn a_waiter_is_called_or_has_the_core() {
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
        assert!(up || world.was_called(1), "it sleeps on a core of its own");
    });
}

/// A waiter goes away just as it is given the core: the core does not stay with it.
#[test]
fn a_core_is_not_left_with_one_that_went() {
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

/// One leaves, two of different levels come: the higher one has it in the end, and the lower
/// one waits or was displaced.
#[test]
fn the_higher_of_two_has_it() {
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
        let lower_knows = !ups[0] || world.rows.was_displaced(1);
        assert!(lower_knows, "the lower one runs on, and nobody told it");
    });
}

/// A holder accepts what it was given while a third one evicts it: one of the two has it, never
/// neither with a waiter asleep.
#[test]
fn eviction_loses_nobody() {
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
