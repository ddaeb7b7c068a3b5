use super::*;

#[test]
fn request_finds_a_parked_vp_once() {
    let word = ParkWord::new(false);
    assert!(!word.request(), "carried");
    word.begin();
    assert!(!word.is_parked());
    assert!(word.commit());
    assert!(word.is_parked());
    assert!(word.request());
    assert!(!word.request(), "requested already");
    assert!(!word.is_parked());
}

#[test]
fn request_while_the_owner_leaves_is_left_to_the_owner() {
    let word = ParkWord::new(false);
    word.begin();
    assert!(!word.request());
    assert!(!word.request());
    assert!(!word.commit(), "the owner requests the carrier");
    word.begin();
    assert!(word.commit(), "the word is usable again");
}

#[test]
fn cancelled_parking_needs_no_carrier() {
    let word = ParkWord::new(false);
    word.begin();
    assert!(!word.request());
    word.cancel();
    assert!(!word.request());
    word.begin();
    assert!(word.commit());
}

#[test]
fn vp_that_begins_parked_is_requested() {
    let word = ParkWord::new(true);
    assert!(word.is_parked());
    assert!(word.request());
}
