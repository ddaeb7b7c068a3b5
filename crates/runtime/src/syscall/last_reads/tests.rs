use super::*;

#[test]
fn read_of_another_microprocess_at_the_last_end_follows() {
    let reads = LastReads::new();
    let (a, b) = (std::ptr::without_provenance(64), std::ptr::without_provenance(128));
    assert!(!reads.note(3, 0, 100, a), "no read before");
    assert!(!reads.note(3, 100, 100, a), "the last read was its own");
    assert!(reads.note(3, 200, 100, b));
    assert!(!reads.note(3, 301, 100, a), "a gap");
    assert!(!reads.note(3 + FILES as RawFd, 401, 100, b), "another file with the same low bits");
    assert!(!reads.note(3, 401, 100, b), "the other file has replaced the entry");
}

#[test]
fn ends_beyond_the_last_offset_wrap() {
    let reads = LastReads::new();
    assert!(!reads.note(0, u64::MAX, 2, std::ptr::null()));
    assert!(reads.note(0, 1, 2, std::ptr::without_provenance(64)));
}
