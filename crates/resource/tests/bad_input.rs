//! Bad input to the table, under each locking design: each case returns a clear error and leaves
//! the table unchanged.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use kumihimo_resource::id::{GENERATIONS, Id, Kind, Location, SLOTS, Serial};
use kumihimo_resource::locking::Locking;
use kumihimo_resource::names::{LONGEST, Name, NameError};
use kumihimo_resource::serials::{CLAIMED_AT_ONCE, Generations};
use kumihimo_resource::slots::{Missing, Slots};
use kumihimo_resource::table::{Command, Error, Operation, Row, Table, Usage};

/// Test kind: numbers, with operations that panic or that call the table again.
struct Numbers {
    kind: Kind,
    locking: Locking,
    generations: Generations,
    slots: Slots<u64>,
    table: OnceLock<&'static Table>,
}

impl Numbers {
    fn stale(&self, serial: Serial) -> impl Fn(Missing) -> Error {
        let id = Id::new(Location::NOWHERE, self.kind, serial);
        move |_| Error::Stale(id)
    }

    fn table(&self) -> &'static Table {
        self.table.get().expect("defined")
    }
}

impl Row for Numbers {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
        let n =
            order.downcast_ref::<u64>().ok_or_else(|| Error::Invalid("expected a u64".into()))?;
        assert_ne!(*n, 13, "refused on purpose");
        self.slots.open(self.locking, &self.generations, 0, *n).map_err(|_| Error::Full(self.kind))
    }

    fn close(&self, serial: Serial) -> Result<(), Error> {
        self.slots
            .close(self.locking, &self.generations, 0, serial)
            .map(drop)
            .map_err(self.stale(serial))
    }

    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let n = self.slots.with(serial, |n| *n).map_err(self.stale(serial))?;
        into.extend_from_slice(&n.to_ne_bytes());
        Ok(8)
    }

    /// Panics while it accesses the resource.
    fn write(&self, serial: Serial, _: &[u8]) -> Result<usize, Error> {
        self.slots.with(serial, |_| panic!("on purpose")).map_err(self.stale(serial))
    }

    /// Calls the table again: for another kind, and for a name.
    fn control(&self, serial: Serial, _: &Command<'_>) -> Result<(), Error> {
        let (table, other) =
            (self.table(), Kind::new(self.kind.number() + 1).expect("one of the two"));
        let id = table.open(other, &mut 5u64)?;
        table.name(&Name::new(other, &format!("of {serial}"))?, id)?;
        table.close(id)
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        self.slots.for_each(|serial, n| each(Usage { serial, owner: None, state: n.to_string() }));
    }
}

/// Runs `test` with a table of two kinds of numbers, under each design.
fn each(generations: impl Fn() -> Generations, test: impl Fn(&'static Table, Kind)) {
    for locking in Locking::ALL {
        let table: &Table =
            Box::leak(Box::new(Table::new(Location::NOWHERE, generations(), locking)));
        for kind in [Kind::FIRST_OWN, Kind::new(Kind::FIRST_OWN.number() + 1).expect("below 32")] {
            let (generations, slots) = (generations(), Slots::new());
            let row = Numbers { kind, locking, generations, slots, table: OnceLock::from(table) };
            table.define(Box::leak(Box::new(row))).expect("it is new");
        }
        test(table, Kind::FIRST_OWN);
    }
}

fn read(table: &Table, id: Id) -> Result<u64, Error> {
    let mut bytes = Vec::new();
    table.read(id, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes.try_into().expect("eight")))
}

#[test]
fn panicking_row_leaves_table_unchanged() {
    each(Generations::unclaimed, |table, kind| {
        let id = table.open(kind, &mut 7u64).expect("room");
        assert!(catch_unwind(AssertUnwindSafe(|| table.open(kind, &mut 13u64))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| table.write(id, b"x"))).is_err());
        let mut shown = 0;
        assert!(
            catch_unwind(AssertUnwindSafe(|| table.usage(None, &mut |_, _| panic!("on purpose"))))
                .is_err()
        );
        table.usage(None, &mut |_, _| shown += 1);
        assert_eq!((shown, read(table, id).expect("it lives")), (1, 7), "{}", table.locking());
        table.close(id).expect("it lives");
        assert!(matches!(table.write(id, b"x"), Err(Error::Stale(stale)) if stale == id));
    });
}

#[test]
fn row_may_call_other_kinds_and_name_tree() {
    each(Generations::unclaimed, |table, kind| {
        let id = table.open(kind, &mut 7u64).expect("room");
        table.control(id, &Command::Own("anything")).expect("no deadlock");
        assert_eq!(table.names().list(None), [], "{}", table.locking());
    });
}

#[test]
fn forged_and_stale_ids_reach_no_resource() {
    each(Generations::unclaimed, |table, kind| {
        let one = table.open(kind, &mut 7u64).expect("room");
        table.close(one).expect("it lives");
        let successor = table.open(kind, &mut 8u64).expect("room");
        assert_eq!(
            (successor.serial().slot(), read(table, successor).expect("it lives")),
            (one.serial().slot(), 8)
        );
        let serial = |slot, generation| table.id(kind, Serial::new(slot, generation));
        let forged = [
            serial(SLOTS - 1, 0),
            serial(one.serial().slot(), GENERATIONS - 1),
            serial(one.serial().slot() + 1, 0),
        ];
        for id in forged.into_iter().chain([one]) {
            assert!(matches!(table.close(id), Err(Error::Stale(stale)) if stale == id), "{id}");
            assert!(matches!(table.write(id, b"x"), Err(Error::Stale(_))), "{id}");
            assert!(matches!(read(table, id), Err(Error::Stale(_))), "{id}");
        }
        let elsewhere = Id::new(Location::new(5).expect("below 4096"), kind, successor.serial());
        assert!(matches!(table.close(elsewhere), Err(Error::Elsewhere(_))));
        let nothing = table.id(Kind::TIMER, successor.serial());
        assert!(matches!(
            table.control(nothing, &Command::Cancel),
            Err(Error::NoKind(Kind::TIMER))
        ));
        assert_eq!(read(table, successor).expect("it lives"), 8);
        assert_eq!(Operation::Control.to_string(), "control");
    });
}

#[test]
fn full_table_fails_and_recovers() {
    each(Generations::unclaimed, |table, kind| {
        let all: Vec<_> = (0..SLOTS)
            .map(|n| table.open(kind, &mut (u64::from(n) + 100)).expect("room"))
            .collect();
        let full = table.open(kind, &mut 7u64).expect_err("there is no slot left");
        assert!(
            matches!(full, Error::Full(k) if k == kind)
                && full.to_string().contains("2097152 slots"),
            "{full}"
        );
        table.close(all[77]).expect("it lives");
        let next = table.open(kind, &mut 9u64).expect("room");
        assert_eq!(next.serial().slot(), all[77].serial().slot());
        assert!(table.open(kind, &mut 7u64).is_err());
    });
}

/// The generations of this process are used up and no more can be claimed: slots retire, and no id
/// is issued twice.
#[test]
fn exhausted_generations_reissue_no_id() {
    each(
        || Generations::new(GENERATIONS - CLAIMED_AT_ONCE, Box::new(|_| false)),
        |table, kind| {
            let mut seen = std::collections::HashSet::new();
            for _ in 0..10 * CLAIMED_AT_ONCE {
                let id = table.open(kind, &mut 7u64).expect("other slots are free");
                assert!(seen.insert(id), "{id} came twice");
                table.close(id).expect("it lives");
            }
            assert!(seen.iter().all(|id| matches!(table.close(*id), Err(Error::Stale(_)))));
        },
    );
}

/// The tree has two levels: a name refers to a resource and never to a name, so there are no
/// cycles.
#[test]
fn invalid_names_and_cycles_are_refused() {
    each(Generations::unclaimed, |table, kind| {
        let id = table.open(kind, &mut 7u64).expect("room");
        let long = "x".repeat(LONGEST + 1);
        for text in ["", "a/b", "/", "..", ".", "a\0b", "a\nb", &long] {
            assert!(matches!(Name::new(kind, text), Err(NameError::Invalid(_))), "{text:?}");
        }
        for path in [
            "",
            "/",
            "kind16/a",
            "/kind16",
            "/kind16/",
            "/kind16/kind16/a",
            "/nothing/a",
            "/kind16/../kind17/a",
        ] {
            assert!(matches!(Name::parse(path), Err(NameError::Invalid(_))), "{path:?}");
        }
        let (a, b) = (Name::new(kind, "a").expect("a name"), Name::new(kind, "b").expect("a name"));
        table.name(&a, id).expect("it is free");
        assert!(
            matches!(table.names().rename(&b, &a), Err(NameError::Unknown(_))),
            "nothing to rename"
        );
        table.names().rename(&a, &a).expect("nothing happens");
        table.names().rename(&a, &b).expect("it is free");
        table.names().rename(&b, &a).expect("it is free");
        let taken = table.name(&a, id).expect_err("it is taken");
        assert!(
            matches!(&taken, Error::Name(NameError::Taken(holder)) if *holder == id),
            "{taken}"
        );
        let other = Name::new(Kind::TIMER, "a").expect("a name");
        assert!(
            matches!(table.name(&other, id), Err(Error::Name(NameError::OtherKind(k))) if k == kind)
        );
        assert_eq!(table.names().list(None), [(a, id)]);
    });
}
