//! `std::sync::OnceLock`.

#[test]
fn written_from_another_thread() {
    use kumihimo::sync::OnceLock;

    static CELL: OnceLock<usize> = OnceLock::new();

    // `OnceLock` has not been written to yet.
    assert!(CELL.get().is_none());

    // Spawn a thread and write to `OnceLock`.
    kumihimo::thread::spawn(|| {
        let value = CELL.get_or_init(|| 12345);
        assert_eq!(value, &12345);
    })
    .join()
    .unwrap();

    // `OnceLock` now contains the value.
    assert_eq!(CELL.get(), Some(&12345));
}

#[test]
fn in_a_static() {
    use kumihimo::sync::OnceLock;

    struct DeepThought {
        answer: String,
    }

    impl DeepThought {
        fn great_question() -> String {
            "42".to_string()
        }
        fn new() -> Self {
            Self { answer: Self::great_question() }
        }
    }

    fn computation() -> &'static DeepThought {
        // n.b. static items do not call [`Drop`] on program termination, so if
        // [`DeepThought`] impls Drop, that will not be used for this instance.
        static COMPUTATION: OnceLock<DeepThought> = OnceLock::new();
        COMPUTATION.get_or_init(|| DeepThought::new())
    }

    let _ = computation().answer;
    // The `OnceLock` now contains the value.
    let _ = computation().answer;
}

#[test]
fn set_and_get() {
    use kumihimo::sync::OnceLock;

    static CELL: OnceLock<i32> = OnceLock::new();

    fn main() {
        assert!(CELL.get().is_none());

        kumihimo::thread::spawn(|| {
            assert_eq!(CELL.set(92), Ok(()));
        })
        .join()
        .unwrap();

        assert_eq!(CELL.set(62), Err(62));
        assert_eq!(CELL.get(), Some(&92));
    }
    main();
}

#[test]
fn wait() {
    use kumihimo::sync::OnceLock;
    use kumihimo::thread;

    let value = OnceLock::new();

    thread::scope(|s| {
        s.spawn(|| value.set(1 + 1));

        let result = value.wait();
        assert_eq!(result, &2);
    })
}

#[test]
fn get_or_init() {
    use kumihimo::sync::OnceLock;

    let cell = OnceLock::new();
    let value = cell.get_or_init(|| 92);
    assert_eq!(value, &92);
    let value = cell.get_or_init(|| unreachable!());
    assert_eq!(value, &92);
}

#[test]
fn into_inner_and_take() {
    use kumihimo::sync::OnceLock;

    let cell: OnceLock<String> = OnceLock::new();
    assert_eq!(cell.into_inner(), None);

    let cell = OnceLock::new();
    cell.set("hello".to_string()).unwrap();
    assert_eq!(cell.into_inner(), Some("hello".to_string()));

    let mut cell: OnceLock<String> = OnceLock::new();
    assert_eq!(cell.take(), None);

    let mut cell = OnceLock::new();
    cell.set("hello".to_string()).unwrap();
    assert_eq!(cell.take(), Some("hello".to_string()));
    assert_eq!(cell.get(), None);
}

#[test]
fn from() {
    use kumihimo::sync::OnceLock;

    let a = OnceLock::from(3);
    let b = OnceLock::new();
    b.set(3).unwrap();
    assert_eq!(a, b);

    let default: OnceLock<()> = OnceLock::default();
    assert_eq!(default, OnceLock::new());
}
