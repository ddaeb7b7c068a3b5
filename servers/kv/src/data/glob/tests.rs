use super::matches;

#[test]
fn patterns_match_as_in_redis() {
    for (pattern, text, is) in [
        ("*", "", true),
        ("", "", true),
        ("", "a", false),
        ("a*c", "abbc", true),
        ("a*c", "abbcd", false),
        ("*a*b*", "xxaxxbxx", true),
        ("h?llo", "hello", true),
        ("h?llo", "hllo", false),
        ("h[ae]llo", "hallo", true),
        ("h[^e]llo", "hello", false),
        ("h[a-c]llo", "hbllo", true),
        ("h[c-a]llo", "hbllo", true),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("[\\]]", "]", true),
        ("[a", "a", true),
        ("a\\", "a\\", true),
        ("**", "abc", true),
        ("?*", "", false),
    ] {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), is, "{pattern} {text}");
    }
}

#[test]
fn no_pattern_takes_exponential_time() {
    let pattern = "a*".repeat(1000) + "b";
    assert!(!matches(pattern.as_bytes(), "a".repeat(5000).as_bytes()));
}
