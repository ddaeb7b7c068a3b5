use super::*;

#[test]
fn modes_are_displayed_as_one_word() {
    for mode in [Mode::Microprocesses, Mode::KernelThreads { why: "a test" }] {
        let text = mode.to_string();
        assert!(!text.is_empty() && !text.contains(char::is_whitespace), "{text}");
    }
}

#[test]
fn thread_local_storage_kind_determines_the_mode() {
    match mode() {
        Mode::Microprocesses => assert_ne!(tls::get().kind(), tls::Kind::Kernel),
        Mode::KernelThreads { why } => assert_eq!(why, tls::get().why()),
    }
}

#[test]
fn features_for_microprocesses_are_refused_by_name_in_other_modes() {
    let supported = supports("gates");
    assert_eq!(supported.is_ok(), HAS_MICROPROCESSES);
    if let Err(e) = supported {
        assert_eq!(e.kind(), io::ErrorKind::Unsupported);
        assert!(e.to_string().starts_with("gates: "), "{e}");
    }
}
