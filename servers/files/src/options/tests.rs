use super::*;

#[test]
fn sizes_and_times_have_units() {
    assert_eq!(bytes("64m"), Ok(64 << 20));
    assert_eq!(bytes("1GB"), Ok(1 << 30));
    for wrong in ["", "m", "12", "1023k", "5x", "99999999999g"] {
        assert!(bytes(wrong).is_err(), "{wrong}");
    }
    assert_eq!(duration("200us"), Ok(Duration::from_micros(200)));
    assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
    for wrong in ["", "5", "ms", "-1s", "1h"] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
    assert_eq!(seconds("0"), Ok(Duration::ZERO));
    assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    for wrong in ["", "-1", "inf", "NaN", "1s"] {
        assert!(seconds(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn organisations_have_the_same_names_everywhere() {
    for organised in Organised::value_variants() {
        let name = organised.to_possible_value().expect("none is hidden").get_name().to_owned();
        assert_eq!(Organisation::from(*organised).to_string(), name);
    }
}
