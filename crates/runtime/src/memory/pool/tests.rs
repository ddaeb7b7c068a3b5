use super::*;

fn free(n: u32) -> Free<u32> {
    Free { list: (0..n).collect(), unused: n as usize, trimmed: 0 }
}

fn holds(free: &Free<u32>) {
    assert!(
        free.trimmed <= free.unused && free.unused <= free.list.len(),
        "{} {} {}",
        free.trimmed,
        free.unused,
        free.list.len()
    );
}

/// The system calls of the first trim took longer than the interval to the second one.
#[test]
fn concurrent_trims_leave_the_pool_consistent() {
    let mut free = free(896);
    let first = free.take_unused();
    holds(&free);
    assert_eq!(first.len(), 896);
    assert!(free.take_unused().is_empty());
    free.put_trimmed(first);
    holds(&free);
    assert_eq!((free.trimmed, free.list.len()), (896, 896));
    assert!(free.take_unused().is_empty(), "all items were trimmed");
}

#[test]
fn trim_races_with_take_and_give() {
    let mut free = free(10);
    free.trimmed = 3;
    free.unused = 7;
    let batch = free.take_unused();
    assert_eq!(batch, [3, 4, 5, 6]);
    holds(&free);
    assert_eq!(free.take(5), [1, 2, 7, 8, 9]);
    holds(&free);
    free.list.push(11);
    free.put_trimmed(batch);
    holds(&free);
    assert_eq!(free.trimmed, 5, "item 0 and the batch of four");
    assert_eq!(free.take(usize::MAX), [0, 3, 4, 5, 6, 11]);
    holds(&free);
}
