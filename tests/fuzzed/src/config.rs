//! Values of settings: sizes, spans, `KUMI_LAB`, and all variables together.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use kumihimo_config::{
    Batch, Preempt, ShownSpan, VARIABLES, Watchdog, bytes, dump_signal, fuzzing, is_dump_signal,
    span,
};

/// Byte 0: the variable; the rest: its value.
pub(crate) fn values(data: &[u8]) {
    let [which, value @ ..] = data else { return };
    if let Ok(text) = str::from_utf8(value) {
        text_values(text);
    }
    let setting = &VARIABLES[usize::from(*which) % VARIABLES.len()];
    let given = OsString::from_vec(value.to_vec());
    let parse =
        |value: &OsString| fuzzing::parse(|name| (name == setting.name).then(|| value.clone()));
    let (config, error, lines) = parse(&given);
    let (default, ..) = fuzzing::parse(|_| None);
    match error {
        // One that is refused has no effect, and its error says what is allowed.
        Some(error) => {
            let text = error.to_string();
            assert!(text.contains(setting.name), "{text}");
            assert!(setting.name == "KUMI_LAB" || config == default, "{config:?}");
            assert!(text.len() <= 4096 + 512 * (value.len() + 1), "{} bytes", text.len());
        }
        None => assert!(config != default || value.is_empty() || is_default(value)),
    }
    assert_eq!(lines.len(), fuzzing::parse(|_| None).2.len());
}

/// Values that state the default.
fn is_default(value: &[u8]) -> bool {
    value == b"on" || value.split(|byte| *byte == b',').all(|pair| pair.ends_with(b"="))
}

fn text_values(text: &str) {
    // A size is what arithmetic on its digits gives.
    let lower = text.to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let unit: Option<u128> = match &lower[digits..] {
        "" | "b" => Some(1),
        "k" | "kb" => Some(1 << 10),
        "m" | "mb" => Some(1 << 20),
        "g" | "gb" => Some(1 << 30),
        _ => None,
    };
    let expected = lower[..digits].parse::<u128>().ok().zip(unit);
    let expected = expected.and_then(|(n, unit)| n.checked_mul(unit)?.try_into().ok());
    assert_eq!(bytes(text), expected, "{text:?}");
    // A span that is shown is parsed back.
    if let Some(found) = span(text)
        && found < Duration::from_secs(u64::MAX / 1_000_000)
    {
        assert_eq!(span(&ShownSpan(found).to_string()), Some(found), "{text:?}");
    }
    if let Some(signal) = dump_signal(text) {
        assert!(is_dump_signal(signal), "{text:?}");
    }
    if let Some(Preempt::Signal(signal)) = Preempt::parse(text) {
        assert!((1..=64).contains(&signal) && signal != 9 && signal != 11, "{text:?}");
    }
    if let Some(Batch::Fixed(size)) = Batch::parse(text) {
        assert!((1..=64).contains(&size), "{text:?}");
    }
    if let Some(bound) = Watchdog::parse(text).and_then(|watchdog| watchdog.bound) {
        assert!((100..=3_600_000).contains(&bound.as_millis()), "{text:?}");
    }
    // Merging with nothing removes only what is empty, and is stable.
    let merged = fuzzing::merge(text, "");
    assert_eq!(fuzzing::merge(&merged, ""), merged);
    let _ = fuzzing::meant(text);
}
