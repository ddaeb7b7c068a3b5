//! The driver itself, on a small page: what it sends arrives, and what it reports happened.

use std::io::Write as _;

use kumihimo_browser::{Browser, Page, Scheme};
use serde_json::json;

const PAGE: &str = "data:text/html,<meta charset=utf-8><title>t</title>\
    <button id=b onclick=\"this.textContent='pressed'\">press</button><input id=i>\
    <div id=d style='height:200px;background:rgb(1,2,3)'></div>\
    <script>keys=[];wheel=0;moves=0;\
    addEventListener('keydown',e=>keys.push((e.shiftKey?'Shift+':'')+e.key));\
    d.addEventListener('wheel',e=>wheel+=e.deltaY);\
    d.addEventListener('mousemove',e=>moves+=e.buttons);</script>";

fn page(name: &str) -> Option<(Browser, Page)> {
    let browser = Browser::start(&[]);
    if browser.is_none() {
        // As `kumihimo_tests::skip`, which lies above this crate: past libtest's capture.
        let line = format!("\n[skip] {name}: no Chromium\n");
        std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
    }
    browser.map(|browser| {
        let page = browser.open(PAGE);
        (browser, page)
    })
}

#[test]
fn input_reaches_the_page() {
    let Some((_browser, page)) = page("input_reaches_the_page") else { return };
    page.click("#b");
    assert_eq!(page.text("#b"), "pressed");
    page.click("#i");
    page.type_text("word");
    assert_eq!(page.evaluate("i.value"), "word");
    page.press("a");
    page.press("Shift+ArrowLeft");
    page.press("Tab");
    assert_eq!(page.evaluate("keys"), json!(["a", "Shift+ArrowLeft", "Tab"]));
    assert_eq!(page.evaluate("i.value"), "worda");
    page.wheel(page.place("#d", 0.5, 0.5), 120.0);
    page.until("wheel === 120");
    page.drag(page.place("#d", 0.1, 0.5), page.place("#d", 0.9, 0.5));
    page.until("moves >= 4");
    page.evaluate("setTimeout(() => { document.title = 'later' })");
    page.until("document.title === 'later'");
}

#[test]
fn errors_and_requests_are_listed() {
    let Some((browser, page)) = page("errors_and_requests_are_listed") else { return };
    assert_eq!((page.console_errors(), page.requests().len()), (Vec::<String>::new(), 1));
    page.evaluate("(console.error('wrong'), setTimeout(() => { throw Error('thrown') }), 0)");
    page.evaluate("new Promise(done => setTimeout(done))");
    let errors = page.console_errors();
    assert!(errors.len() == 2 && errors[0].contains("wrong"), "{errors:?}");
    assert!(errors[1].contains("thrown"), "{errors:?}");
    // Nothing listens on this port.
    page.evaluate("fetch('http://127.0.0.1:9/x').catch(() => 0)");
    assert_eq!(page.requests()[1], "http://127.0.0.1:9/x");
    page.go(PAGE);
    assert_eq!(page.console_errors(), Vec::<String>::new());
    let thrown = std::panic::catch_unwind(|| page.until("no.such.thing"));
    assert!(thrown.is_err());
    assert!(page.metrics()["TaskDuration"] > 0.0 && page.metrics()["JSHeapUsedSize"] > 0.0);
    assert!(browser.peak_memory() > 1 << 20);
}

#[test]
fn size_scheme_and_picture_are_as_asked() {
    let Some((_browser, page)) = page("size_scheme_and_picture_are_as_asked") else { return };
    page.resize(400, 300);
    assert_eq!(page.evaluate("[innerWidth, innerHeight]"), json!([400, 300]));
    for (scheme, dark) in [(Scheme::Dark, true), (Scheme::Light, false)] {
        page.prefer(scheme);
        assert_eq!(page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches"), dark);
    }
    let picture = page.screenshot();
    // The header of the format has the size in its bytes 16 to 24.
    assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(picture[16..24], [0, 0, 1, 0x90, 0, 0, 1, 0x2c]);
}

#[test]
fn killed_browser_leaves_no_process() {
    let Some((browser, page)) = page("killed_browser_leaves_no_process") else { return };
    let reply = browser.request("SystemInfo.getProcessInfo", json!({}));
    let pids: Vec<u64> = reply["processInfo"]
        .as_array()
        .expect("processes")
        .iter()
        .filter_map(|one| one["id"].as_u64())
        .collect();
    assert!(pids.len() > 1);
    drop(page);
    browser.kill();
    let lives = |pid: &u64| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        state.is_some_and(|state| state != 'Z' && state != 'X')
    };
    while pids.iter().any(lives) {
        std::thread::yield_now();
    }
}
