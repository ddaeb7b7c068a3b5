use super::*;

#[test]
fn each_mode_is_shown_as_one_word() {
    for mode in [Mode::Microprocesses, Mode::KernelThreads { why: "a test" }] {
        let text = mode.to_string();
        assert!(!text.is_empty() && !text.contains(char::is_whitespace), "{text}");
    }
}

#[test]
fn the_mode_follows_from_thread_local_storage() {
    match mode() {
        Mode::Microprocesses => assert_ne!(tls::get().kind(), tls::Kind::Kernel),
        Mode::KernelThreads { why } => assert_eq!(why, tls::get().why()),
    }
}

#[test]
fn what_needs_microprocesses_is_refused_by_name_elsewhere() {
    let supported = supports("gates");
    assert_eq!(supported.is_ok(), HAS_MICROPROCESSES);
    if let Err(e) = supported {
        assert_eq!(e.kind(), io::ErrorKind::Unsupported);
        assert!(e.to_string().starts_with("gates: "), "{e}");
    }
}
