//! Borders that are killed, stopped or replaced, and machines that begin anew.

use std::fs;

use kumihimo_machine::handler::State;
use kumihimo_tests::process::send_signal;
use rustix::process::Signal;

use super::site::Site;

#[test]
fn killed_border_is_unreachable_and_reached_again_when_it_is_replaced() {
    let site = Site::new("border-killed");
    let one = site.there.space();
    one.table.add(1, "worker", State::Running);
    let (_here, there) = site.serve();
    let (place, epoch) = (there.place.clone(), there.epoch.clone());
    assert_eq!(site.here.kumi(&["ps", "--machine", "build7"]).0, 0);
    there.kill();
    site.until_listed(" unreachable ");
    let (code, said, complaints) = site.here.kumi(&["ps", "--machine", "build7"]);
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(complaints.contains("machine build7"), "{complaints}");
    assert!(complaints.contains("is unreachable since"), "{complaints}");
    // The directory is the same, and so are its ids.
    let there = site.serve_there(&place);
    assert_eq!(there.epoch, epoch);
    site.until_listed(" reachable ");
    assert_eq!(site.here.kumi(&["ps", "--machine", "build7"]).0, 0);
}

#[test]
fn stopped_border_is_unreachable_until_it_continues() {
    let site = Site::new("border-stopped");
    let _one = site.there.space();
    let (_here, there) = site.serve();
    assert_eq!(site.here.kumi(&["ps", "--machine", "build7"]).0, 0);
    send_signal(there.child.id(), Signal::STOP).expect("it lives");
    site.until_listed(" unreachable ");
    let (code, _, complaints) = site.here.kumi(&["ps", "--machine", "build7"]);
    assert!(code == 1 && complaints.contains("is unreachable since"), "{complaints}");
    send_signal(there.child.id(), Signal::CONT).expect("it lives");
    site.until_listed(" reachable ");
    assert_eq!(site.here.kumi(&["ps", "--machine", "build7"]).0, 0);
}

#[test]
fn ids_of_an_earlier_epoch_are_stale() {
    let site = Site::new("border-epoch");
    let one = site.there.space();
    let id = one.table.add(1, "worker", State::Running);
    let (_here, there) = site.serve();
    let (place, epoch) = (there.place.clone(), there.epoch.clone());
    let target = format!("build7@{epoch}/{}.1.1", one.table.number);
    assert_eq!(site.here.kumi(&["suspend", &target]).0, 0);
    assert_eq!(site.here.kumi(&["resume", &target]).0, 0);
    there.kill();
    // As after a reboot: another epoch, the same numbers.
    fs::remove_file(site.there.path().join("epoch")).expect("it was written");
    let there = site.serve_there(&place);
    assert_ne!(there.epoch, epoch);
    site.until_listed(&there.epoch);
    let acted = one.table.acted().len();
    let (code, said, complaints) = site.here.kumi(&["suspend", &target]);
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(complaints.contains(&format!("epoch {epoch} of machine build7 has ended")));
    assert_eq!((one.table.acted().len(), one.table.row(id).state), (acted, State::Runnable));
}
