use proptest::prelude::*;

use super::*;

#[test]
fn remote_calls_survive_a_round_trip() {
    for kind in [RemoteKind::Probe, RemoteKind::Call, RemoteKind::Send, RemoteKind::Stream] {
        for types in [None, Some(u64::MAX)] {
            let call =
                RemoteCall { kind, machine: "build7", gate: "adder", types, payload: b"\x01\x02" };
            assert_eq!(RemoteCall::decode(&call.encode()), Ok(call));
        }
    }
}

#[test]
fn other_versions_and_short_calls_are_refused() {
    let call = RemoteCall {
        kind: RemoteKind::Call,
        machine: ANY,
        gate: "adder",
        types: None,
        payload: &[],
    };
    let bytes = call.encode();
    for length in 0..bytes.len() {
        let error = RemoteCall::decode(&bytes[..length]).expect_err("too short");
        assert_eq!(error.kind(), ErrorKind::Malformed);
    }
    let other = RemoteCall::decode(&[2, 1]).expect_err("another version");
    assert_eq!(other.kind(), ErrorKind::Version);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = RemoteCall::decode(&bytes);
    }
}
