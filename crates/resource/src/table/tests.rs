use super::*;
use crate::slots::{Missing, Slots};

/// Test kind: words that can be opened, closed and read.
struct Words {
    kind: Kind,
    slots: Slots<Vec<u8>>,
    generations: Generations,
}

impl Words {
    fn leaked(kind: Kind) -> &'static Words {
        Box::leak(Box::new(Words {
            kind,
            slots: Slots::new(),
            generations: Generations::unclaimed(),
        }))
    }

    fn stale(&self, serial: Serial) -> impl Fn(Missing) -> Error {
        let id = Id::new(Location::NOWHERE, self.kind, serial);
        move |_| Error::Stale(id)
    }
}

impl Row for Words {
    fn kind(&self) -> Kind {
        self.kind
    }
    fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
        let order = order
            .downcast_mut::<Vec<u8>>()
            .ok_or_else(|| Error::Invalid("expected a Vec<u8>".into()))?;
        self.slots
            .open(Locking::Vp, &self.generations, 0, std::mem::take(order))
            .map_err(|_| Error::Full(self.kind))
    }
    fn close(&self, serial: Serial) -> Result<(), Error> {
        self.slots
            .close(Locking::Vp, &self.generations, 0, serial)
            .map(drop)
            .map_err(self.stale(serial))
    }
    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let copy = |word: &mut Vec<u8>| {
            into.extend_from_slice(word);
            word.len()
        };
        self.slots.with(serial, copy).map_err(self.stale(serial))
    }
    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        self.slots.for_each(|serial, word| {
            each(Usage { serial, owner: None, state: format!("{} bytes", word.len()) })
        });
    }
}

fn table(locking: Locking) -> (Table, Kind) {
    let table = Table::new(Location::NOWHERE, Generations::unclaimed(), locking);
    table.define(Words::leaked(Kind::FIRST_OWN)).unwrap();
    (table, Kind::FIRST_OWN)
}

#[test]
fn operations_reach_the_row() {
    for locking in Locking::ALL {
        let (table, kind) = table(locking);
        let id = table.open(kind, &mut b"word".to_vec()).unwrap();
        table.name(&Name::new(kind, "first").unwrap(), id).unwrap();
        let mut read = Vec::new();
        assert_eq!(
            table
                .read(
                    table.names().find(&Name::parse("/kind16/first").unwrap()).unwrap(),
                    &mut read
                )
                .unwrap(),
            4
        );
        assert_eq!(read, b"word");
        assert!(
            matches!(table.write(id, b"x"), Err(Error::Unsupported(k, Operation::Write)) if k == kind)
        );
        assert!(matches!(
            table.control(id, &Command::Suspend),
            Err(Error::Unsupported(_, Operation::Control))
        ));
        let mut seen = Vec::new();
        table.usage(None, &mut |id, usage| seen.push((id, usage.state)));
        assert_eq!(seen, [(id, "4 bytes".to_owned())]);
        table.close(id).unwrap();
        assert!(matches!(table.close(id), Err(Error::Stale(_))));
        assert!(matches!(table.read(id, &mut read), Err(Error::Stale(_))));
        assert_eq!(table.names().list(None), []);
    }
}

#[test]
fn errors_distinguish_missing_resources() {
    let (table, kind) = table(Locking::Vp);
    let serial = Serial::new(0, 0);
    let elsewhere = Id::new(Location::new(3).unwrap(), kind, serial);
    assert!(matches!(table.close(elsewhere), Err(Error::Elsewhere(_))));
    assert!(matches!(table.close(table.id(Kind::TIMER, serial)), Err(Error::NoKind(Kind::TIMER))));
    assert!(matches!(table.close(table.id(kind, serial)), Err(Error::Stale(_))));
    assert!(matches!(table.open(kind, &mut 5), Err(Error::Invalid(_))));
    assert!(matches!(table.define(Words::leaked(kind)), Err(Error::Invalid(_))));
}

/// Under one lock per kind, a thread inside a kind excludes other threads from that kind only.
#[cfg(feature = "lab")]
#[test]
fn kind_lock_excludes_its_own_kind_only() {
    let (table, kind) = table(Locking::Kind);
    let held = table.enter(kind);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| table.open(kind, &mut Vec::<u8>::new()).unwrap());
        assert!(table.enter(Kind::TIMER).is_some());
        assert!(table.kinds[kind.row()].try_lock().is_err());
        drop(held);
        waits.join().unwrap();
    });
    assert!(
        Table::new(Location::NOWHERE, Generations::unclaimed(), Locking::Id).enter(kind).is_none()
    );
}
