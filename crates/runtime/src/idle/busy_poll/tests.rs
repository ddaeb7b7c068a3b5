use super::*;

#[test]
fn a_peer_is_alone_after_some_turns_and_until_the_first_that_is_none() {
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
    assert_eq!(turn(2, 1, Duration::from_millis(1)), 0, "it took its time");
    assert_eq!(turn(SWITCHES, 1, short), 1);
    assert_eq!(turn(2, EVENTS, short), 2);
    assert_eq!(turn(2, EVENTS + 1, short), 0, "several were heard");
    assert_eq!(turn(2, 1, short), 1);
    assert_eq!(turn(SWITCHES + 1, 1, short), 0, "there was more to do");
    assert_eq!(turn(2, 0, short), 0, "it was something else");
}
