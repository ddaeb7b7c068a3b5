use proptest::prelude::*;

use super::*;

#[test]
fn id_prints_and_parses_without_kind() {
    let id = Id::new(Location::new(12).unwrap(), Kind::MICROPROCESS, Serial::new(42, 7));
    assert_eq!(id.to_string(), "12.microprocess.42.7");
    assert_eq!("12.42.7".parse(), Ok(id));
    let far = Id::new(
        Location { machine: 3, space: 4095 },
        Kind::new(31).unwrap(),
        Serial::new(SLOTS - 1, GENERATIONS - 1),
    );
    assert_eq!(far.to_string(), "3/4095.kind31.2097151.8388607");
    assert_eq!(far.bits().get(), u64::MAX >> 1);
}

#[test]
fn malformed_id_error_names_wrong_part() {
    for (text, part) in [
        ("", "number of its parts"),
        ("1.2", "number of its parts"),
        ("1.vp.2.3.4", "number of its parts"),
        ("4096.vp.0.1", "address space"),
        ("-1.vp.0.1", "address space"),
        ("01.vp.0.1", "address space"),
        ("1.fiber.0.1", "kind"),
        ("1.kind32.0.1", "kind"),
        ("1.kind5.0.1", "kind"),
        ("1..0.1", "kind"),
        ("1.vp.2097152.1", "slot"),
        ("1.vp.+1.1", "slot"),
        ("1.vp.0.8388608", "generation"),
        ("1.vp.0.1 ", "generation"),
        ("1.vp.0.99999999999999999999", "generation"),
        ("0/1.vp.0.1", "machine"),
        ("4/1.vp.0.1", "machine"),
        ("1.vp.0.1\0", "generation"),
    ] {
        let said = text.parse::<Id>().expect_err(text).to_string();
        assert!(
            said.contains(&format!("(its {part})")) || said.contains(&format!("(the {part})")),
            "{text}: {said}"
        );
    }
}

proptest! {
    #[test]
    fn id_survives_bits_and_text(bits in any::<u64>()) {
        match Id::from_bits(bits) {
            Some(id) => {
                prop_assert_eq!(id.bits().get(), bits);
                prop_assert_eq!(Id::new(id.location(), id.kind(), id.serial()), id);
                prop_assert_eq!(id.to_string().parse::<Id>(), Ok(id));
            }
            None => prop_assert!(bits >> 63 == 1 || bits >> SERIAL_BITS & low(KIND_BITS) == 0),
        }
    }

    #[test]
    fn text_parses_as_at_most_one_id(text in "[0-9./a-z]{0,24}") {
        if let Ok(id) = text.parse::<Id>() {
            let short = id.to_string().replace(".microprocess.", ".");
            prop_assert!(text == id.to_string() || text == short);
        }
    }
}
