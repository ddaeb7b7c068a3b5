use super::*;

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn metric_is_found_among_others() {
    let said = lines("sequential 93.5 ns \nbulk_warm 210 ns alive_max:=100000");
    assert_eq!(find(&said, "bulk_warm"), Ok(210.0));
    assert_eq!(find(&said, "sequential"), Ok(93.5));
}

#[test]
fn floor_beside_a_metric_does_not_count() {
    let said = lines("switch 3 ns runtime=floor\nswitch 11 ns ");
    assert_eq!(find(&said, "switch"), Ok(11.0));
}

#[test]
fn metric_that_was_not_printed_is_absent() {
    assert_eq!(find(&lines("switch 3 ns"), "swi"), Err(Unread::Absent));
    assert_eq!(find(&[], "switch"), Err(Unread::Absent));
}

#[test]
fn line_without_number_or_unit_is_nonsense() {
    for line in
        ["switch", "switch fast ns", "switch 3", "switch NaN ns", "switch inf ns", "switch -1 ns"]
    {
        assert_eq!(find(&lines(line), "switch"), Err(Unread::Nonsense(line.to_owned())), "{line}");
    }
}
