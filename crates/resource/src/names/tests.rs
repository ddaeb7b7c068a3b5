use proptest::prelude::*;

use super::*;
use crate::id::{Location, Serial};

fn id(kind: Kind, slot: u32) -> Id {
    Id::new(Location::default(), kind, Serial::new(slot, 1))
}

fn name(text: &str) -> Name {
    Name::new(Kind::TIMER, text).unwrap()
}

#[test]
fn invalid_names_are_refused_with_reason() {
    for (path, why) in [
        ("", "expected /kind/name"),
        ("timer/a", "expected /kind/name"),
        ("/timer", "expected /kind/name"),
        ("/timer/", "empty"),
        ("/timer/a/b", "slash"),
        ("/timer/../vp", "slash"),
        ("/timer/..", "no entries `.` and `..`"),
        ("/timer/a\0b", "NUL"),
        ("/timer/a\nb", "control"),
        ("/clock/a", "not a kind"),
        ("//a", "not a kind"),
    ] {
        let said = Name::parse(path).expect_err(path).to_string();
        assert!(said.contains(why), "{path:?}: {said}");
    }
    let (longest, longer) = ("x".repeat(LONGEST), "x".repeat(LONGEST + 1));
    assert!(Name::new(Kind::TIMER, &longest).is_ok());
    assert!(
        Name::new(Kind::TIMER, &longer).expect_err("too long").to_string().contains("256 bytes")
    );
}

#[test]
fn name_stays_under_its_kind() {
    for design in Locking::ALL {
        let names = Names::new(design);
        assert_eq!(names.link(&name("a"), id(Kind::VP, 1)), Err(NameError::OtherKind(Kind::VP)));
        names.link(&name("a"), id(Kind::TIMER, 1)).unwrap();
        let elsewhere = Name::new(Kind::VP, "a").unwrap();
        assert_eq!(names.rename(&name("a"), &elsewhere), Err(NameError::OtherKind(Kind::TIMER)));
        assert_eq!(names.find(&name("a")), Ok(id(Kind::TIMER, 1)));
    }
}

#[test]
fn watcher_receives_changes_in_order() {
    for design in Locking::ALL {
        let names = Names::new(design);
        let (timers, vps) = (
            names.watch(Some(Kind::TIMER), Box::new(|| ())),
            names.watch(Some(Kind::VP), Box::new(|| ())),
        );
        let one = id(Kind::TIMER, 1);
        names.link(&name("a"), one).unwrap();
        names.rename(&name("a"), &name("b")).unwrap();
        names.forget(one);
        let seen: Vec<_> = std::iter::from_fn(|| timers.next()).collect();
        let expected = [
            Change::Linked(name("a"), one),
            Change::Renamed(name("a"), name("b"), one),
            Change::Unlinked(name("b"), one),
        ];
        assert_eq!(seen, expected);
        assert_eq!(vps.next(), None);
    }
}

#[test]
fn slow_watcher_counts_lost_changes() {
    let names = Names::new(Locking::Vp);
    let watch = names.watch(None, Box::new(|| ()));
    for n in 0..UNSEEN as u32 + 5 {
        names.link(&name(&n.to_string()), id(Kind::TIMER, n)).unwrap();
    }
    assert_eq!(watch.lost(), 5);
    assert_eq!(std::iter::from_fn(|| watch.next()).count(), UNSEEN);
}

#[derive(Clone, Debug)]
enum Step {
    Link(u8, u32),
    Unlink(u8),
    Rename(u8, u8),
    Forget(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..12, 0u32..5).prop_map(|(name, id)| Step::Link(name, id)),
        2 => (0u8..12).prop_map(Step::Unlink),
        3 => (0u8..12, 0u8..12).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (0u32..5).prop_map(Step::Forget),
    ]
}

proptest! {
    /// Compares each design with a plain map.
    #[test]
    fn all_designs_behave_as_one_tree(steps in prop::collection::vec(step(), 0..60)) {
        for design in Locking::ALL {
            let (names, mut model) = (Names::new(design), BTreeMap::<Name, Id>::new());
            let text = |n: &u8| name(&n.to_string());
            for step in &steps {
                match step {
                    Step::Link(n, slot) => {
                        let (n, it) = (text(n), id(Kind::TIMER, *slot));
                        let expected = model.get(&n).map_or(Ok(()), |holder| Err(NameError::Taken(*holder)));
                        prop_assert_eq!(names.link(&n, it), expected);
                        model.entry(n).or_insert(it);
                    }
                    Step::Unlink(n) => {
                        let n = text(n);
                        prop_assert_eq!(names.unlink(&n).ok(), model.remove(&n));
                    }
                    Step::Rename(from, to) => {
                        let (from, to) = (text(from), text(to));
                        let expected = match (model.get(&from), model.get(&to)) {
                            (None, _) => Err(NameError::Unknown(from.to_string())),
                            (Some(_), Some(holder)) if from != to => Err(NameError::Taken(*holder)),
                            _ => Ok(()),
                        };
                        prop_assert_eq!(names.rename(&from, &to), expected.clone());
                        if expected.is_ok() {
                            let it = model.remove(&from).unwrap();
                            model.insert(to, it);
                        }
                    }
                    Step::Forget(slot) => {
                        names.forget(id(Kind::TIMER, *slot));
                        model.retain(|_, it| *it != id(Kind::TIMER, *slot));
                    }
                }
                let all: Vec<_> = model.iter().map(|(n, it)| (n.clone(), *it)).collect();
                prop_assert_eq!(names.list(Some(Kind::TIMER)), all);
                for slot in 0..5 {
                    let mut of = names.of_id(id(Kind::TIMER, slot));
                    of.sort();
                    let expected: Vec<_> = model.iter().filter(|(_, it)| **it == id(Kind::TIMER, slot)).map(|(n, _)| n.clone()).collect();
                    prop_assert_eq!(of, expected);
                }
            }
        }
    }
}

/// Threads rename names into each other's partitions concurrently, in both directions: no
/// deadlock occurs, and no name is lost.
#[test]
fn crosswise_renames_do_not_deadlock() {
    for design in Locking::ALL {
        let names = Names::new(design);
        for n in 0..8 {
            names.link(&name(&format!("{n}")), id(Kind::TIMER, n)).unwrap();
        }
        std::thread::scope(|scope| {
            for t in 0..4u32 {
                let names = &names;
                scope.spawn(move || {
                    for turn in 0..2_000u32 {
                        let (from, to) = ((turn * 7 + t) % 16, (turn * 5 + 3 * t) % 16);
                        let _ = names.rename(&name(&from.to_string()), &name(&to.to_string()));
                    }
                });
            }
        });
        let mut left: Vec<_> =
            names.list(None).into_iter().map(|(_, it)| it.serial().slot()).collect();
        left.sort_unstable();
        assert_eq!(left, (0..8).collect::<Vec<_>>(), "{design}");
    }
}
