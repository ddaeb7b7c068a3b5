//! Tests of the hub with address spaces in a temporary run-time directory.

use std::path::PathBuf;

use kumihimo_machine::directory::Directory;
use kumihimo_tests::until;

use super::*;

/// A hub over an empty run-time directory, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn hub(test: &str) -> (Arc<Hub>, Folder) {
        let path = std::env::temp_dir().join(format!("kumi-hub-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory::own(&path).expect("a run-time directory");
        let machine = Machine::at(&path).expect("it is there");
        (Hub::new(machine, Duration::from_millis(1)), Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn latency(space: u16) -> View {
    View::parse(&format!(r#"{{"show":"latency","space":{space}}}"#)).expect("valid")
}

fn new(subscription: &mut Subscription) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let look = || {
        match subscription.next(Duration::from_millis(1)) {
            Update::New(new) => found = new,
            Update::Nothing => {}
            Update::End => panic!("the hub has ended"),
        }
        !found.is_empty()
    };
    until("a result of a view", || (), look);
    found.into_iter().map(|(at, text)| (at, text.to_string())).collect()
}

/// Waits until the hub has so many views: a watcher ends some time after its last page.
fn until_views(hub: &Hub, views: usize) {
    until("so many views", || hub.views(), || hub.views() == views);
}

#[test]
fn pages_with_the_same_view_share_a_watcher() {
    let (hub, _folder) = Folder::hub("shared");
    let mut pages: Vec<Subscription> =
        (0..50).map(|_| hub.subscribe(vec![View::Spaces, latency(9)]).expect("room")).collect();
    assert_eq!(hub.views(), 2);
    for page in &mut pages {
        let mut seen = [false; 2];
        while seen != [true; 2] {
            for (at, text) in new(page) {
                seen[at] = true;
                let want = ["{\"spaces\":[]}", "there is no address space 9"][at];
                assert!(text.contains(want), "{text}");
            }
        }
    }
    drop(pages);
    until_views(&hub, 0);
}

#[test]
fn views_are_bounded_and_a_refused_page_keeps_none() {
    let (hub, _folder) = Folder::hub("bounded");
    let all: Vec<View> = (1..=MOST_VIEWS as u16).map(latency).collect();
    let page = hub.subscribe(all.clone()).expect("room");
    let why = hub.subscribe(vec![latency(1), View::Spaces]).err().expect("no room");
    assert!(why.contains("close some pages"), "{why}");
    assert_eq!(hub.views(), MOST_VIEWS);
    let same = hub.subscribe(vec![latency(1)]).expect("it is there already");
    drop(page);
    until_views(&hub, 1);
    drop(same);
    until_views(&hub, 0);
}

#[test]
fn end_reaches_streams_and_watchers() {
    let (hub, _folder) = Folder::hub("end");
    let mut page = hub.subscribe(vec![View::Spaces]).expect("room");
    new(&mut page);
    hub.end();
    assert!(matches!(page.next(Duration::from_secs(60)), Update::End));
    until_views(&hub, 0);
}
