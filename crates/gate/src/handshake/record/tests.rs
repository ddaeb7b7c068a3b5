use proptest::prelude::*;

use super::*;
use crate::wire::error_record::LONGEST_TEXT;
use crate::wire::packet::LONGEST;

fn hello() -> Hello {
    Hello {
        name: "clock".into(),
        types: Some(7),
        size: LaneSize { cells: 1024, inline: 4096 },
        wake_address: Some(WakeAddress { board: 1 << 100, row: 3, bit: 9 }),
        placement: Placement::Spin,
        origin: None,
    }
}

#[test]
fn records_round_trip() {
    let welcome =
        Welcome { link: u64::MAX, size: LaneSize { cells: 2, inline: 64 }, wake_address: None };
    assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    for one in [
        hello(),
        Hello { types: None, wake_address: None, ..hello() },
        Hello { name: "x".repeat(200), ..hello() },
    ] {
        assert_eq!(Hello::decode(&one.encode()), Ok(one));
    }
    for kind in (0..).map_while(ErrorKind::of_number) {
        let error = Error::new(kind, "why");
        assert_eq!(Welcome::decode(&refusal(&error)), Err(error));
    }
}

#[test]
fn version_mismatch_is_named() {
    let mut record = hello().encode();
    record[4..6].copy_from_slice(&9_u16.to_le_bytes());
    let error = Hello::decode(&record).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    assert!(
        error.to_string().contains("version 9") && error.to_string().contains("version 1"),
        "{error}"
    );
    // Refusals are read whatever their version.
    let mut record = refusal(&error);
    record[4..6].copy_from_slice(&9_u16.to_le_bytes());
    assert_eq!(Welcome::decode(&record), Err(error));
}

#[test]
fn long_error_text_is_truncated_at_a_character() {
    let record = refusal(&Error::new(ErrorKind::Io, "\u{e9}".repeat(2000)));
    assert!(record.len() <= LONGEST);
    let error = Welcome::decode(&record).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().chars().count()),
        (ErrorKind::Io, LONGEST_TEXT / 2)
    );
}

#[test]
fn record_of_the_wrong_length_is_malformed() {
    let record = hello().encode();
    for length in 0..record.len() {
        assert_eq!(
            Hello::decode(&record[..length]).unwrap_err().kind(),
            ErrorKind::Malformed,
            "{length}"
        );
    }
    let more = [&record[..], b"x"].concat();
    assert_eq!(Hello::decode(&more).unwrap_err().kind(), ErrorKind::Malformed);
    for name in ["", ".", ".x", "a/b", "a\0b"] {
        let record = Hello { name: name.into(), ..hello() }.encode();
        assert_eq!(Hello::decode(&record).unwrap_err().kind(), ErrorKind::Malformed, "{name:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_decode_or_are_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..300), ours in any::<bool>()) {
        if ours && bytes.len() > 7 {
            bytes[..4].copy_from_slice(&MAGIC);
            let what = bytes[6] % 4;
            bytes[4..7].copy_from_slice(&[1, 0, what]);
        }
        if let Ok(hello) = Hello::decode(&bytes) {
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
        if let Ok(welcome) = Welcome::decode(&bytes) {
            prop_assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
    }
}
