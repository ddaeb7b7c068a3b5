use super::*;

#[test]
fn status_round_trips() {
    let failed = (0..).map_while(ErrorKind::of_number).map(Status::Failed);
    for status in
        [Status::Done, Status::InRegion, Status::Item, Status::End].into_iter().chain(failed)
    {
        assert_eq!(Status::of(status.number()), Some(status));
    }
    assert_eq!(Status::of(4), None);
    assert_eq!(Status::of(FAILED - 1), None);
    assert_eq!(Status::of(FAILED + 16), None);
    assert_eq!(Status::of(u32::MAX), None);
}
