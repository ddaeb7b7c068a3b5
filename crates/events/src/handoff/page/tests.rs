use super::*;

#[test]
fn page_with_another_version_is_rejected() {
    let page = Page::new(3).expect("memory");
    let base = page.base.cast::<u8>();
    // SAFETY: mapped while `page` exists.
    let same = unsafe { Page::of(base, 4 * size_of::<Slot>()) }.expect("our own");
    assert_eq!(same.slots(), 3);
    // SAFETY: as above.
    let short = unsafe { Page::of(base, 3 * size_of::<Slot>()) }.expect_err("too small");
    assert_eq!(short.kind(), io::ErrorKind::InvalidData);
    // SAFETY: no other thread reads the page.
    unsafe { base.cast::<Header>().write(Header { version: VERSION + 1, ..Header::new(3, 0) }) };
    // SAFETY: as above.
    let other = unsafe { Page::of(base, 4 * size_of::<Slot>()) }.expect_err("another version");
    assert!(other.to_string().contains("another version"), "{other}");
}

#[test]
#[should_panic(expected = "slot 4 of 3")]
fn slot_beyond_the_last_panics() {
    let _ = Page::new(3).expect("memory").slot(4);
}
