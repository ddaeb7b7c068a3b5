//! A session in a terminal as an asciicast, version 2: a line of JSON with the size of the
//! terminal, and one for each output with its time.
//!
//! <https://docs.asciinema.org/manual/asciicast/v2/>

use std::time::Duration;

use serde_json::json;

/// Returns the text of the file.
pub fn draw((width, height): (u16, u16), title: &str, written: &[(Duration, Vec<u8>)]) -> String {
    let head = json!({ "version": 2, "width": width, "height": height, "title": title });
    let mut text = format!("{head}\n");
    let mut rest: Vec<u8> = Vec::new();
    for (at, bytes) in written {
        rest.extend(bytes);
        // A character that is cut between two outputs belongs to the later one.
        let end = match std::str::from_utf8(&rest) {
            Ok(all) => all.len(),
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            Err(_) => rest.len(),
        };
        let output = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest.drain(..end);
        if !output.is_empty() {
            let seconds = at.as_micros() as f64 / 1e6;
            text += &format!("{}\n", json!([seconds, "o", output]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_cut() {
        let parts = ["a\x1b[1m".as_bytes(), &[0xc3], &[0xa9, b'b'], &[0xff]];
        let written: Vec<(Duration, Vec<u8>)> = (1u64..)
            .zip(parts)
            .map(|(n, part)| (Duration::from_millis(n * 500), part.to_vec()))
            .collect();
        let text = draw((80, 24), "a title", &written);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let head = json!({ "version": 2, "width": 80, "height": 24, "title": "a title" });
        let want = [
            head,
            json!([0.5, "o", "a\u{1b}[1m"]),
            json!([1.5, "o", "\u{e9}b"]),
            json!([2.0, "o", "\u{fffd}"]),
        ];
        assert_eq!(lines, want);
    }
}
