use super::*;

#[test]
fn cores_are_looked_at_once_a_second() {
    let watch = CoreWatch::new(true);
    let looks = |now| watch.look_if_due(now).is_some();
    assert!(!looks(0) && !looks(LOOK_EVERY - 1));
    assert!(looks(LOOK_EVERY));
    assert!(!looks(LOOK_EVERY) && !looks(2 * LOOK_EVERY - 1));
    // A late look delays the next one, and is not made up for.
    assert!(looks(5 * LOOK_EVERY + 7));
    assert!(!looks(6 * LOOK_EVERY));
    assert!(looks(6 * LOOK_EVERY + 7));
}

#[test]
fn fixed_number_of_vps_is_not_looked_at() {
    let watch = CoreWatch::new(false);
    assert!(watch.look_if_due(100 * LOOK_EVERY).is_none());
}

#[test]
fn default_has_room_for_the_vps_in_use() {
    let (rooms, open) = default_vps();
    assert!(1 <= open && open <= rooms && rooms <= MAX_VPS, "{open} of {rooms}");
    assert!(rooms <= cores::online().max(open));
}
