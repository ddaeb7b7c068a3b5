use super::*;
use proptest::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Question {
    Nothing,
    Add(i64, u8),
    Put { name: String, bytes: Vec<u8>, at: Option<u32> },
    Many(BTreeMap<u16, String>),
}

fn question() -> impl Strategy<Value = Question> {
    prop_oneof![
        Just(Question::Nothing),
        (any::<i64>(), any::<u8>()).prop_map(|(a, b)| Question::Add(a, b)),
        (".{0,20}", prop::collection::vec(any::<u8>(), 0..50), any::<Option<u32>>())
            .prop_map(|(name, bytes, at)| Question::Put { name, bytes, at }),
        prop::collection::btree_map(any::<u16>(), ".{0,5}", 0..10).prop_map(Question::Many),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn encoding_round_trips(value in question(), before in prop::collection::vec(any::<u8>(), 0..9)) {
        let mut bytes = before.clone();
        Typed::encode(&value, &mut bytes).unwrap();
        let mut buffer = [0; 1024];
        let n = encode_into(&value, &mut buffer).unwrap();
        prop_assert_eq!(&bytes[before.len()..], &buffer[..n]);
        prop_assert_eq!(&bytes[..before.len()], &before[..]);
        prop_assert_eq!(Typed::<Question>::decode(&buffer[..n]).unwrap(), value.clone());
        let more = Typed::<Question>::decode(&buffer[..n + 1]).unwrap_err();
        prop_assert!(more.kind() == ErrorKind::Malformed && more.to_string().contains("left over"));
        let less = Typed::<Question>::decode(&buffer[..n - 1]).unwrap_err();
        prop_assert_eq!(less.kind(), ErrorKind::Malformed);
        let small = encode_into(&value, &mut buffer[..n - 1]).unwrap_err();
        prop_assert_eq!(small.kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn arbitrary_bytes_decode_or_are_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = Typed::<Question>::decode(&bytes) {
            prop_assert_eq!(error.kind(), ErrorKind::Malformed);
            prop_assert!(error.to_string().contains("Question"), "{}", error);
        }
        prop_assert_eq!(Raw::decode(&bytes).unwrap(), bytes);
    }
}

/// A length that says more than there is allocates nothing near it.
#[test]
fn length_beyond_the_bytes_is_malformed() {
    let bytes = [&[0xff; 9][..], &[1, 2, 3]].concat();
    assert_eq!(Typed::<Vec<u64>>::decode(&bytes).unwrap_err().kind(), ErrorKind::Malformed);
    assert_eq!(Typed::<String>::decode(&bytes).unwrap_err().kind(), ErrorKind::Malformed);
}

#[test]
fn unencodable_value_leaves_the_buffer_unchanged() {
    struct Never;
    impl Serialize for Never {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            use serde::ser::{Error, SerializeSeq};
            let mut all = to.serialize_seq(Some(2))?;
            all.serialize_element(&1u8)?;
            Err(S::Error::custom("never"))
        }
    }
    impl<'a> Deserialize<'a> for Never {
        fn deserialize<D: serde::Deserializer<'a>>(_: D) -> Result<Never, D::Error> {
            Ok(Never)
        }
    }
    let mut bytes = vec![9];
    assert_eq!(Typed::encode(&Never, &mut bytes).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(bytes, [9]);
    assert_eq!(encode_into(&Never, &mut [0; 9]).unwrap_err().kind(), ErrorKind::Invalid);
}
