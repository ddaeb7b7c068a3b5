use super::*;

#[test]
fn the_second_block_within_the_time_counts() {
    let sticky = Sticky::new();
    assert!(!sticky.blocked_again(1_000));
    assert!(sticky.blocked_again(1_000 + WITHIN));
    assert!(!sticky.blocked_again(2_000 + 2 * WITHIN), "that was long ago");
    assert!(!sticky.blocked_again(5), "on another kernel thread");
    sticky.begin();
    assert!(!sticky.blocked_again(6), "in another life");
}

#[test]
fn it_stays_as_long_as_it_blocks_elsewhere() {
    let sticky = Sticky::new();
    sticky.weight.set(WEIGHT);
    let mut switches = 0;
    let mut waits = |elsewhere: u64| {
        switches += 1 + elsewhere;
        sticky.weigh(switches)
    };
    for _ in 0..100 {
        assert_eq!(waits(1), (true, 1), "each wait in the runtime has one elsewhere beside it");
    }
    assert_eq!(waits(0), (true, 0));
    assert_eq!(waits(0), (false, 0), "half of one is nothing");
    sticky.weight.set(WEIGHT);
    let stays = (0..).take_while(|_| waits(0).0).count();
    assert_eq!(stays, 4);
    assert_eq!(waits(1_000).1, 1_000);
    assert_eq!(sticky.weight.get(), WEIGHT);
}
