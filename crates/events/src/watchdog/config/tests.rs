use super::*;

#[test]
fn distrust_is_parsed_by_name() {
    assert_eq!(Distrust::from_name("override"), Ok(Distrust::default()));
    assert_eq!(Distrust::from_name("report=200").map(|d| d.bound), Ok(Duration::from_millis(200)));
    for text in ["", "on", "end=", "end=99", "end=x", "end=-1", "report=3600001", "=100"] {
        assert!(
            Distrust::from_name(text).expect_err(text).contains("off, report, override or end")
        );
    }
}
