use super::*;
use crate::pool::sched::BOUND;

#[test]
fn what_is_recorded_can_be_read() {
    let recorder = Recorder::new();
    recorder.add(Step::Answered, 7, ThreadState::Sleeping as u32 | BOUND, 63);
    recorder.add(Step::Interrupt, 0, 0, NO_PRIORITY);
    let first = Record {
        step: Step::Answered,
        thread: 7,
        state: Some((ThreadState::Sleeping, true)),
        priority: Some(63),
    };
    let second = Record { step: Step::Interrupt, thread: 0, state: None, priority: None };
    assert_eq!(recorder.all(), [first, second]);
}

#[test]
fn the_numbers_are_the_figures() {
    for (step, number) in Step::ALL.into_iter().zip(1..) {
        assert_eq!((step.number(), Step::from_number(number)), (number, Some(step)));
    }
    assert_eq!((Step::from_number(0), Step::from_number(14)), (None, None));
}

#[test]
fn beyond_the_last_place_nothing_happens() {
    let recorder = Recorder::new();
    for _ in 0..MOST + 3 {
        recorder.add(Step::Loaded, 1, 0, 5);
    }
    assert_eq!(recorder.all().len(), MOST);
}
