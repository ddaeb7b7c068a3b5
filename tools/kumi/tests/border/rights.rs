//! What `build7` allows `build8`.

use kumihimo_machine::handler::{Action, State};

use super::site::Site;

#[test]
fn nothing_is_allowed_by_default() {
    let site = Site::new("border-deny");
    let one = site.there.space();
    one.table.add(1, "worker", State::Running);
    let target = format!("build7/{}.1.1", one.table.number);
    for config in ["", "allow build8\n", "allow build9 observe steer\n"] {
        site.write_other(config);
        let _borders = site.serve();
        for args in
            [&["ps", "--machine", "build7"][..], &["suspend", &target], &["backtrace", &target]]
        {
            let (code, said, complaints) = site.here.kumi(args);
            assert_eq!((code, said.as_str()), (1, ""), "{config:?}: {complaints}");
            assert!(complaints.contains("build8 may not observe here"), "{complaints}");
        }
    }
    assert_eq!(one.table.acted(), []);
}

#[test]
fn observers_do_not_steer_and_levels_are_capped() {
    let site = Site::new("border-rights");
    let one = site.there.space();
    let id = one.table.add(1, "worker", State::Running);
    let target = format!("build7/{}.1.1", one.table.number);
    site.allow("observe");
    {
        let _borders = site.serve();
        assert_eq!(site.here.kumi(&["ps", &target]).0, 0);
        for command in [&["suspend"][..], &["resume"], &["cancel"], &["priority", "1"]] {
            let (code, _, complaints) = site.here.kumi(&[command, &[&*target]].concat());
            assert!(code == 1 && complaints.contains("may not steer here"), "{complaints}");
        }
    }
    site.allow("observe steer level=40");
    let _borders = site.serve();
    let (code, _, complaints) = site.here.kumi(&["priority", "41", &target]);
    assert!(code == 1 && complaints.contains("may set priorities up to 40"), "{complaints}");
    assert_eq!(site.here.kumi(&["priority", "40", &target]).0, 0);
    // Gates serve others, which did not ask for their end.
    let gate = format!("build7/{}.gate.0.1", one.table.number);
    let (code, _, complaints) = site.here.kumi(&["cancel", &gate]);
    assert!(code == 1 && complaints.contains("microprocesses only"), "{complaints}");
    assert_eq!(one.table.acted(), [(id, Action::Priority(40))]);
}
