use super::*;

/// Parses `input`, delivered in pieces of `step` bytes.
fn cut(input: &[u8], step: usize) -> (Vec<Vec<Vec<u8>>>, Found) {
    let (mut requests, mut commands) = (Requests::default(), Vec::new());
    for piece in input.chunks(step) {
        let mut piece = piece;
        while !piece.is_empty() {
            assert!(requests.fill(&mut piece).expect("bytes in memory"));
        }
        loop {
            match requests.next() {
                Found::Command => {
                    commands.push(requests.args().from(0).map(<[u8]>::to_vec).collect());
                    requests.done();
                }
                Found::Unfinished => break,
                malformed => return (commands, malformed),
            }
        }
    }
    (commands, Found::Unfinished)
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn requests_split_anywhere_parse_the_same() {
    let long = "x".repeat(10_000);
    let input = format!(
        "*1\r\n$4\r\nPING\r\n*-1\r\n*0\r\n\r\nset a 'b c'\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$10000\r\n{long}\r\nget \"\\x41\\n\"\n"
    );
    let expected = vec![
        words(&["PING"]),
        words(&["set", "a", "b c"]),
        words(&["SET", "", &long]),
        words(&["get", "A\n"]),
    ];
    for step in [1, 2, 3, 7, 64, 4096, usize::MAX] {
        assert_eq!(
            cut(input.as_bytes(), step),
            (expected.clone(), Found::Unfinished),
            "step {step}"
        );
    }
}

#[test]
fn malformed_requests_get_rediss_errors() {
    let long = "1".repeat(MAX_LINE + 1);
    let found = Found::Malformed("Protocol error: expected '$', got '\u{fffd}'".into());
    assert_eq!(cut(b"*1\r\n\xff\r\n", usize::MAX), (vec![], found));
    for (input, error) in [
        ("*x\r\n".to_owned(), "invalid multibulk length"),
        ("*01\r\n".to_owned(), "invalid multibulk length"),
        ("*99999999999\r\n".to_owned(), "invalid multibulk length"),
        ("*1\r\n*1\r\n".to_owned(), "expected '$', got '*'"),
        ("*1\r\n:5\r\n".to_owned(), "expected '$', got ':'"),
        ("*1\r\n\r\n".to_owned(), "expected '$', got '\r'"),
        ("*1\r\n$-1\r\n".to_owned(), "invalid bulk length"),
        ("*1\r\n$536870913\r\n".to_owned(), "invalid bulk length"),
        ("*1\r\n$a\r\n".to_owned(), "invalid bulk length"),
        (format!("*{long}"), "too big mbulk count string"),
        (format!("*1\r\n${long}"), "too big bulk count string"),
        (long.clone(), "too big inline request"),
        ("get \"a\r\n".to_owned(), "unbalanced quotes in request"),
        ("get 'a'b\r\n".to_owned(), "unbalanced quotes in request"),
    ] {
        for step in [1, 5, usize::MAX] {
            let found = Found::Malformed(format!("Protocol error: {error}").into());
            assert_eq!(
                cut(input.as_bytes(), step),
                (vec![], found),
                "{:?} step {step}",
                &input[..input.len().min(40)]
            );
        }
    }
}

#[test]
fn announced_length_allocates_no_memory() {
    let mut requests = Requests::default();
    let mut input = &b"*2\r\n$3\r\nGET\r\n$536870912\r\nabc"[..];
    assert!(requests.fill(&mut input).expect("bytes in memory"));
    assert_eq!(requests.next(), Found::Unfinished);
    assert!(requests.fill(&b"d"[..]).expect("bytes in memory"));
    assert!(requests.footprint() < 3 * SMALL, "{}", requests.footprint());
}

#[test]
fn only_canonical_numbers_parse() {
    for (text, number) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("99999999999999999999", None),
        ("-0", None),
        ("01", None),
        ("+1", None),
        (" 1", None),
        ("1 ", None),
        ("", None),
        ("-", None),
        ("1a", None),
    ] {
        assert_eq!(integer(text.as_bytes()), number, "{text:?}");
    }
}
