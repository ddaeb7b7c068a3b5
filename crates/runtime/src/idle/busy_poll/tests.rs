use super::*;

#[test]
fn short_turns_count_in_a_row_until_one_fails() {
    let busy_poll = BusyPoll::default();
    let (mut switches, mut heard) = (0, 0);
    let mut turn = |ran, events, idle: Duration| {
        switches += ran;
        heard += events;
        let is_turn_over = busy_poll.is_turn_over(switches, heard);
        busy_poll.note_idle(is_turn_over, idle.as_nanos() as u64);
        busy_poll.turns.get()
    };
    let short = Duration::from_micros(60);
    for n in 1..20 {
        assert_eq!(turn(2, 1, short), n);
    }
    assert_eq!(turn(2, 1, Duration::from_millis(1)), 0, "the peer was slow");
    assert_eq!(turn(SWITCHES, 1, short), 1);
    assert_eq!(turn(2, EVENTS, short), 2);
    assert_eq!(turn(2, EVENTS + 1, short), 0, "too many events");
    assert_eq!(turn(2, 1, short), 1);
    assert_eq!(turn(SWITCHES + 1, 1, short), 0, "too many switches");
    assert_eq!(turn(2, 0, short), 0, "no event");
}
