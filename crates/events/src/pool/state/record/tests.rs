use super::*;
use crate::pool::sched::BOUND;

#[test]
fn recorded_steps_are_read_back_in_order() {
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
fn steps_have_the_numbers_of_the_figure() {
    for (step, number) in Step::ALL.into_iter().zip(1..) {
        assert_eq!((step.number(), Step::from_number(number)), (number, Some(step)));
    }
    assert_eq!((Step::from_number(0), Step::from_number(14)), (None, None));
}

#[test]
fn full_recorder_ignores_further_steps() {
    let recorder = Recorder::new();
    for _ in 0..MOST + 3 {
        recorder.add(Step::Loaded, 1, 0, 5);
    }
    assert_eq!(recorder.all().len(), MOST);
}
