//! `std::sync::LazyLock`.

#[test]
fn in_a_static() {
    use kumihimo::sync::LazyLock;

    // Note: static items do not call [`Drop`] on program termination, so this won't deallocate.
    // this is fine, as the OS can deallocate the terminated program faster than we can free memory
    // but tools like valgrind might report "memory leaks" as it isn't obvious this is intentional.
    static DEEP_THOUGHT: LazyLock<String> = LazyLock::new(|| {
        mod another_crate {
            pub fn great_question() -> String {
                "42".to_string()
            }
        }
        // Takes about 16 million years in --release config.
        another_crate::great_question()
    });

    // The `String` is built, stored in the `LazyLock`, and returned as `&String`.
    let _ = &*DEEP_THOUGHT;
    // The `String` is retrieved from the `LazyLock` and returned as `&String`.
    let _ = &*DEEP_THOUGHT;
}

#[test]
fn in_a_field() {
    use kumihimo::sync::LazyLock;

    #[derive(Debug)]
    struct UseCellLock {
        number: LazyLock<u32>,
    }
    let lock: LazyLock<u32> = LazyLock::new(|| 0u32);

    let data = UseCellLock { number: lock };
    println!("{}", *data.number);
}

#[test]
fn new_and_force() {
    use kumihimo::sync::LazyLock;

    let hello = "Hello, World!".to_string();
    let lazy = LazyLock::new(|| hello.to_uppercase());
    assert_eq!(&*lazy, "HELLO, WORLD!");

    let lazy = LazyLock::new(|| 92);
    assert_eq!(LazyLock::force(&lazy), &92);
    assert_eq!(&*lazy, &92);
}
