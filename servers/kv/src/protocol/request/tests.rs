use kumihimo::sync::Arc;
use kumihimo_tests::Random;

use super::*;
use crate::budget::{Account, Budget};

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

#[test]
fn hostile_input_gets_an_error_within_bounded_memory() {
    let budget = Arc::new(Budget::new(1 << 20));
    let mut random = Random(29);
    for _ in 0..300 {
        let account = Arc::new(Account::new(&budget));
        let mut requests = Requests::limited(Share::new(&account));
        requests.unauthenticated = random.one_in(4);
        let mut ended = false;
        for _ in 0..200 {
            let piece = match random.below(9) {
                0 => (0..random.below(3000)).map(|_| random.number() as u8).collect(),
                1 => format!("*{}\r\n", random.number() as i64).into_bytes(),
                2 => format!("*3\r\n${}\r\n", random.number() as i64 >> random.below(64))
                    .into_bytes(),
                3 => b"*1\r\n".repeat(random.below(2000) as usize),
                4 => vec![b'x'; random.below(100_000) as usize],
                5 => b"*1048576\r\n".to_vec(),
                6 => b"$1\r\na\r\n".repeat(random.below(20_000) as usize),
                7 => b"$536870912\r\n".to_vec(),
                _ => b"*1\r\n$4\r\nPING\r\nget a\r\n".to_vec(),
            };
            let mut piece = &piece[..];
            while !piece.is_empty() && !ended {
                ended = requests.fill(&mut piece).is_err();
                loop {
                    match requests.next() {
                        Found::Command => {
                            assert!(requests.args().len() > 0);
                            requests.done();
                        }
                        Found::Unfinished => break,
                        Found::Malformed(error) => {
                            assert!(error.starts_with("Protocol error: ") && error.len() < 200);
                            ended = true;
                            break;
                        }
                    }
                }
                // A line has 64 KiB at most, and needs 17 bytes for each byte while it is split.
                let most = (1 << 20) + SMALL_REQUEST + 18 * LARGE;
                assert!(requests.footprint() <= most, "{}", requests.footprint());
                assert!(account.held() <= 3 << 18);
            }
            if ended {
                break;
            }
        }
        drop(requests);
        assert_eq!(budget.used(), 0, "all memory is returned");
    }
}
