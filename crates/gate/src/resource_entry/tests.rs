use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo_resource::table::table;

use super::*;

#[derive(Default)]
struct Clock(AtomicBool);

impl Inspect for Clock {
    fn state(&self) -> String {
        if self.0.load(Ordering::Relaxed) { "ending".into() } else { "3 callers, 7 calls".into() }
    }

    fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn gate_is_found_by_name_read_and_cancelled() {
    let clock = Arc::new(Clock::default());
    let (gate, link) = (gate("a clock", clock.clone()), link(Arc::new(Clock::default())));
    let (id, other) = (gate.id().unwrap(), link.id().unwrap());
    assert_eq!((id.kind(), other.kind()), (Kind::GATE, Kind::LINK));
    assert_eq!(table().names().find(&Name::parse("/gate/a clock").unwrap()), Ok(id));
    let mut state = Vec::new();
    table().read(id, &mut state).unwrap();
    assert_eq!(String::from_utf8(state).unwrap(), "3 callers, 7 calls");
    assert!(matches!(table().control(other, &Command::Suspend), Err(Error::Invalid(_))));
    table().control(id, &Command::Cancel).unwrap();
    assert_eq!(clock.state(), "ending");
    drop((gate, link));
    assert!(matches!(table().control(id, &Command::Cancel), Err(Error::Stale(_))));
    assert!(table().names().find(&Name::parse("/gate/a clock").unwrap()).is_err());
    assert_eq!(Arc::strong_count(&clock), 1);
}
