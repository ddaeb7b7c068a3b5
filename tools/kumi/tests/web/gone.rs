//! Browsers that go away leave nothing.

use kumihimo_tests::until;

use super::double::Folder;
use super::plain::Web;

/// Numbers of the server's sockets, and of its microprocesses for connections and views. Where
/// microprocesses are kernel threads, none is listed. Other descriptors belong to kernel threads,
/// whose number follows the load.
fn used(folder: &Folder, web: &Web) -> (usize, usize) {
    let (code, said, complaints) = folder.kumi(&["ps", "--json", &web.pid().to_string()]);
    assert_eq!((code, complaints.as_str()), (0, ""));
    let named = |line: &&str| line.contains("\"connection\"") || line.contains("\"watcher\"");
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", web.pid())).expect("it lives");
    let is_socket = |path: &std::path::PathBuf| path.to_string_lossy().starts_with("socket:");
    let sockets = descriptors.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok());
    (sockets.filter(is_socket).count(), said.lines().filter(named).count())
}

#[test]
fn browsers_that_vanish_leave_nothing() {
    let folder = Folder::new("web-gone");
    let one = folder.space();
    let web = Web::start(&folder);
    let session = web.sign_in();
    let number = one.table.number;
    let view = format!(r#"{{"show":"latency","space":{number}}}"#);
    let views = [r#"{"show":"spaces"}"#, &view];
    // What is created once, by the first stream, stays.
    session.events(&views).of(1);
    until("the first stream ends", || used(&folder, &web), || used(&folder, &web).1 == 0);
    let before = used(&folder, &web);
    for _ in 0..3 {
        let mut all: Vec<_> = (0..20).map(|_| session.events(&views)).collect();
        all.iter_mut().for_each(|events| drop(events.of(1)));
        let during = used(&folder, &web);
        assert!(during.0 >= before.0 + 20, "{before:?} {during:?}");
        // The connections are closed with events unread.
        drop(all);
        until(
            "they end",
            || used(&folder, &web),
            || {
                let now = used(&folder, &web);
                now.0 <= before.0 && now.1 == 0
            },
        );
    }
}
