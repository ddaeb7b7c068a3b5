use super::super::key::FOREVER;
use super::super::value::{End, List};
use super::*;
use crate::data::databases::Databases;

#[test]
fn a_slice_frees_a_bounded_number_of_entries_and_items() {
    let databases = Databases::default();
    for n in 0..5_000_u32 {
        let name = n.to_string();
        let key = databases.key(name.as_bytes());
        let mut shard = databases.lock(0, &key);
        shard.set(&key, None, b"value", if n % 2 == 0 { 7 } else { FOREVER });
        if n % 1000 == 0 {
            let mut list = List::default();
            (0..3_000).for_each(|_| list.push(End::Right, b"item"));
            let key = databases.key(b"list");
            drop(shard);
            let mut shard = databases.lock(n as usize / 1000, &key);
            shard.insert(&key, Value::List(Box::new(list)));
        }
    }
    let before = databases.shared.memory();
    let cleared = databases.clear();
    // Nothing is freed yet, and nothing is there any more.
    assert_eq!(databases.shared.memory(), before);
    assert!(databases.lock_whole(0).shards().all(|shard| shard.len() == 0));
    let mut slices = 0;
    for mut one in cleared {
        while !one.is_empty() {
            let (slots, due) = (one.slots.len(), one.due.len());
            one.free_some();
            assert!(slots - one.slots.len() + (due - one.due.len()) <= SLICE);
            slices += 1;
        }
    }
    // 15,000 items, 5,005 entries, 2,500 of which expire.
    assert!(slices >= (15_000 + 5_005 + 2_500) / SLICE, "{slices}");
    assert_eq!(databases.shared.memory(), 0);
}

#[test]
fn what_is_dropped_early_is_no_longer_counted() {
    let databases = Databases::default();
    for n in 0..2_000_u32 {
        let name = n.to_string();
        let key = databases.key(name.as_bytes());
        databases.lock(3, &key).set(&key, None, &[7; 100], FOREVER);
    }
    let mut cleared = databases.clear();
    cleared.iter_mut().for_each(Cleared::free_some);
    // New data is counted beside that which is not freed yet.
    let key = databases.key(b"new");
    databases.lock(3, &key).set(&key, None, b"value", FOREVER);
    drop(cleared);
    let left = databases.shared.memory();
    assert!(left > 0 && left < 10_000, "{left}");
}
