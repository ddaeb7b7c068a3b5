use super::*;

#[test]
fn means_are_parsed_by_name() {
    assert_eq!(Means::from_name("clock"), Ok(Means::Clock));
    assert_eq!(Means::from_name("off"), Ok(Means::Off));
    assert_eq!(Means::from_name("signal"), Ok(Means::Signal(libc::SIGURG)));
    assert_eq!(Means::from_name("signal=10"), Ok(Means::Signal(10)));
    for text in [
        "",
        "signal=",
        "signal=0",
        "signal=5",
        "signal=9",
        "signal=11",
        "signal=33",
        "signal=65",
        "tick",
        "clock=1",
    ] {
        let e = Means::from_name(text).expect_err(text);
        assert!(e.contains("clock, signal, signal=N or off"), "{e}");
    }
    assert_eq!(Means::from_name(&Means::Signal(10).to_string()), Ok(Means::Signal(10)));
}
