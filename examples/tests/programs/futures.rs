//! `future_channel` and `beside_tokio`.

use crate::program::output;

#[test]
fn async_crates_without_a_reactor() {
    let said = output(env!("CARGO_BIN_EXE_future_channel"), &[]);
    assert_eq!(said, "sum 5050, letters 22\nthe second came first\n");
}

#[test]
fn async_crates_beside_tokio() {
    let said = output(env!("CARGO_BIN_EXE_beside_tokio"), &[]);
    let clients: String = (0..20).map(|n| format!("there {n}, here {n}\n")).collect();
    assert_eq!(said, clients + "never: deadline has elapsed\n");
}
