use super::*;

fn link(slot: u32, name: Option<&str>, does: &str, because: Because) -> Link {
    Link {
        id: Some(format!("1.{slot}.1").parse().expect("an ID")),
        name: name.map(str::to_owned),
        kernel_thread: None,
        does: does.to_owned(),
        waiting_ns: None,
        is_timed: false,
        because,
    }
}

#[test]
fn chain_is_one_sentence() {
    let mut timed = link(2, None, "waits for the mutex at 0x20", Because::Holds);
    timed.is_timed = true;
    let chain = Chain {
        is_cycle: false,
        links: vec![
            link(0, Some("main"), "waits for the end of its scope's children", Because::Child),
            link(1, Some("a"), "waits for the end of microprocess 1.2.1", Because::End),
            timed,
            link(3, Some("c"), "is queued", Because::Unknown),
        ],
        others: 0,
    };
    assert_eq!(
        chain.to_string(),
        "1.0.1 (main) waits for the end of its scope's children, of which \
         1.1.1 (a) waits for the end of microprocess 1.2.1: \
         1.2.1 waits for the mutex at 0x20 until a deadline, held by \
         1.3.1 (c), which is queued"
    );
}

#[test]
fn cycle_returns_to_its_first_member() {
    let cycle = Chain {
        is_cycle: true,
        links: vec![
            link(1, None, "waits for the mutex at 0x10", Because::Holds),
            link(2, None, "waits for the mutex at 0x20", Because::Holds),
        ],
        others: 0,
    };
    assert_eq!(
        cycle.to_string(),
        "1.1.1 waits for the mutex at 0x10, held by 1.2.1, \
         which waits for the mutex at 0x20, held by 1.1.1"
    );
}

#[test]
fn holders_of_later_versions_are_unknown() {
    let later: Holder = serde_json::from_str(r#"{"kind":"lease","until":3}"#).expect("a holder");
    assert_eq!(later, Holder::Unknown);
    let because: Because = serde_json::from_str(r#""leases""#).expect("a reason");
    assert_eq!(because, Because::Unknown);
    for holder in [
        Holder::Microprocess { id: "1.2.3".parse().expect("an ID"), name: None },
        Holder::KernelThread { thread: 7 },
        Holder::Readers { count: 2 },
        Holder::Ended,
        Holder::Free,
        Holder::Unknown,
    ] {
        let json = serde_json::to_string(&holder).expect("JSON");
        assert_eq!(serde_json::from_str::<Holder>(&json).expect("a holder"), holder, "{json}");
    }
}
