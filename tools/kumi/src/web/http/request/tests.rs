//! Tests of the parser of requests, on bytes alone.

use super::*;

fn parsed(text: &str) -> Result<Option<(Request, usize, usize)>, Malformed> {
    head(text.as_bytes(), is_complete(text.as_bytes()))
}

fn status(text: &str) -> u16 {
    parsed(text).expect_err("it is refused").0
}

#[test]
fn request_has_its_parts() {
    let text = "POST /act?a=1&view=%7B%22x%22%7D&view=+ HTTP/1.1\r\nHost: localhost:80\r\n\
        Cookie: a=b; kumi=0f; c=\r\nContent-Length: 3\r\nConnection: keep-alive, Close\r\n\r\nxyz";
    let (request, used, length) = parsed(text).expect("valid").expect("complete");
    assert_eq!((used, length), (text.len() - 3, 3));
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/act"));
    assert_eq!(request.field("host"), Some("localhost:80"));
    assert_eq!((request.cookie("kumi"), request.cookie("d")), (Some("0f"), None));
    assert_eq!(request.parameters("view").collect::<Vec<_>>(), ["{\"x\"}", " "]);
    assert!(request.ends());
}

#[test]
fn fields_that_occur_twice_have_no_value() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nCookie: k=1; k=2\r\n\r\n";
    let (request, ..) = parsed(text).expect("valid").expect("complete");
    assert_eq!((request.field("host"), request.cookie("k")), (None, None));
    assert!(!request.ends());
}

#[test]
fn incomplete_head_waits_for_more_up_to_the_limit() {
    assert_eq!(parsed("GET / HTTP/1.1\r\nHost: a\r\n"), Ok(None));
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(MOST_HEAD));
    assert_eq!(status(&long), 431);
    assert_eq!(status(&format!("{long}\r\n")), 431);
    let many: String = (0..=MOST_FIELDS).map(|n| format!("x{n}: 1\r\n")).collect();
    assert_eq!(status(&format!("GET / HTTP/1.1\r\n{many}\r\n")), 431);
}

#[test]
fn ambiguous_and_foreign_requests_are_refused() {
    for (text, want) in [
        ("GET / HTTP/1.0\r\n\r\n", 505),
        ("GET / HTTP/2.0\r\n\r\n", 505),
        ("\x16\x03\x01\x02\x00\n\n", 400),
        ("GET http://a/ HTTP/1.1\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nx: \u{7f}\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 16385\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413),
    ] {
        assert_eq!(status(text), want, "{text:?}");
    }
}
