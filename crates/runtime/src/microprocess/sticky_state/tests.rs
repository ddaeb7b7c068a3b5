use super::*;

#[test]
fn second_block_within_the_limit_makes_sticky() {
    let sticky = Sticky::new();
    assert!(!sticky.blocked_again(1_000));
    assert!(sticky.blocked_again(1_000 + WITHIN));
    assert!(!sticky.blocked_again(2_000 + 2 * WITHIN), "the first block was too long ago");
    assert!(!sticky.blocked_again(5), "the block was on another kernel thread");
    sticky.begin(false);
    assert!(!sticky.blocked_again(6), "the block was in another life");
}

#[test]
fn microprocess_stays_sticky_while_it_blocks_elsewhere() {
    let sticky = Sticky::new();
    sticky.weight.set(WEIGHT);
    let mut switches = 0;
    let mut waits = |elsewhere: u64| {
        switches += 1 + elsewhere;
        sticky.weigh(switches)
    };
    for _ in 0..100 {
        assert_eq!(waits(1), (true, 1), "one block elsewhere for each wait in the runtime");
    }
    assert_eq!(waits(0), (true, 0));
    assert_eq!(waits(0), (false, 0), "half of a weight of 1 is 0");
    sticky.weight.set(WEIGHT);
    let stays = (0..).take_while(|_| waits(0).0).count();
    assert_eq!(stays, 4);
    assert_eq!(waits(1_000).1, 1_000);
    assert_eq!(sticky.weight.get(), WEIGHT);
}
