//! Tests of `own_kind`.

use crate::program::run;

#[test]
fn gauges_are_found_by_name() {
    let gauges = |arguments: &[&str]| run(env!("CARGO_BIN_EXE_own_kind"), arguments);
    let ended = gauges(&["boiler=80", "boiler=+15", "cellar=12", "boiler", "cellar=reset"]);
    assert!(ended.status.success(), "{ended:?}");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{ended:?}");
    assert!(lines[0].contains("shows 95") && lines[0].contains("boiler"), "{ended:?}");
    assert!(lines[1].contains("shows 0") && lines[1].contains("cellar"), "{ended:?}");
    for (argument, why) in
        [("boiler=hot", "is not a number"), ("a/b=1", "slash"), ("=1", "is empty")]
    {
        let ended = gauges(&[argument]);
        assert!(!ended.status.success() && ended.stderr.contains(why), "{argument}: {ended:?}");
    }
}
