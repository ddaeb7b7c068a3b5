//! The page in a headless Chromium.

use kumihimo_machine::handler::State;
use kumihimo_tests::browser::{self, Browser, Page, Scheme};
use kumihimo_tests::process::{is_child, is_one_to_one};
use kumihimo_tests::{skip, until};
use serde_json::Value;

use super::double::Folder;
use super::plain::Web;
use super::program::{self, HOSTILE, Program, WAITERS};

/// Folder for the pictures of the book: `KUMI_TEST_PICTURES=docs/src/images`.
const PICTURES: &str = "KUMI_TEST_PICTURES";

/// A browser, unless the test is skipped.
fn started(test: &str) -> Option<Browser> {
    if is_one_to_one() {
        skip(test, "microprocesses are kernel threads here");
        return None;
    }
    browser::start(test)
}

/// The page, opened by the printed address, when it shows rows.
fn open(browser: &Browser, web: &Web) -> Page {
    let page = browser.open(&web.address);
    page.until("document.querySelectorAll('#rows tbody tr').length > 0");
    page
}

/// Asserts that nothing went wrong, and that nothing was requested from elsewhere.
fn is_clean(page: &Page, web: &Web) {
    assert_eq!(page.console_errors(), Vec::<String>::new());
    let own = [format!("http://{}/", web.place), format!("blob:http://{}/", web.place)];
    for request in page.requests() {
        assert!(own.iter().any(|own| request.starts_with(own)), "{request}");
    }
}

fn choose(page: &Page, selector: &str, value: &str) {
    page.evaluate(&format!(
        "(() => {{ const it = document.querySelector({selector:?}); it.value = {value:?};
            it.dispatchEvent(new Event('change')); }})()"
    ));
}

const ALL: &str = "browser::page_shows_steers_and_profiles";

#[test]
fn page_shows_steers_and_profiles() {
    if is_child(ALL) {
        program::body();
    }
    let Some(browser) = started(ALL) else { return };
    let folder = Folder::new("web-browser");
    let program = Program::start(&folder, ALL);
    let web = Web::start(&folder);
    let page = browser.blank();
    page.resize(1000, 900);
    page.go(&web.address);
    page.until(&format!("document.querySelectorAll('#rows tbody tr').length > {WAITERS}"));
    assert_eq!(page.evaluate("location.search"), "", "the token is gone");
    page.until("document.querySelector('#status').textContent === 'live'");
    assert_eq!(page.count("#spaces tbody tr"), 1);
    assert!(page.text("#summary").contains("living"), "{}", page.text("#summary"));

    // A name is text.
    let named = format!(
        "[...document.querySelectorAll('#rows td')].filter(td => td.textContent === {HOSTILE:?}).length"
    );
    page.until(&format!("{named} === 1"));
    assert_eq!((page.count("#rows img"), page.count("#rows b")), (0, 0));
    assert_eq!(page.evaluate("document.title"), "Kumihimo");

    steers(&page, &program);
    groups(&page);

    page.click("#tab-locks");
    page.until("document.querySelectorAll('#locks tbody tr').length > 0");
    let lock = page.text("#locks tbody tr");
    assert!(lock.contains("mutex") && lock.contains("holder"), "{lock}");
    assert!(page.text("#lock-totals").contains(&format!("{WAITERS} wait for 1 lock")));

    page.click("#tab-latency");
    page.until("document.querySelectorAll('#wake tbody tr').length > 0");
    page.until("document.querySelector('#wake td.bar div').offsetWidth > 0");

    page.click("#tab-profile");
    choose(&page, "#kind", "stacks");
    page.click("#profile button");
    page.until("document.querySelector('#flame-picture').naturalWidth > 0");
    assert!(page.text("#flame-text").contains("worker"), "{}", page.text("#flame-text"));

    // By keys: the tab list moves, and Enter presses the button of a row.
    page.evaluate("document.querySelector('#tab-profile').focus()");
    page.press("ArrowRight");
    page.until("document.querySelector('#tab-microprocesses').ariaSelected === 'true'");
    page.until("document.querySelectorAll('#rows tbody tr').length > 0");
    page.evaluate("document.querySelector('#rows tbody button').focus()");
    page.press("Enter");
    page.until("document.querySelector('#one').open");
    page.press("Escape");
    page.until("!document.querySelector('#one').open");

    for (width, scheme) in [(1000, Scheme::Light), (400, Scheme::Dark)] {
        page.resize(width, 900);
        page.prefer(scheme);
        page.until(&format!("innerWidth === {width}"));
        let wide = page.evaluate("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(width.into()), "{wide} at {width}");
        picture(&page, width);
    }
    is_clean(&page, &web);
}

/// Suspends, resumes, re-prioritises and cancels, each time after a question, and asks the program.
fn steers(page: &Page, program: &Program) {
    page.click("#filter");
    page.type_text("VICTIM");
    page.until("document.querySelectorAll('#rows tbody tr').length === 1");
    page.click("#rows tbody tr button");
    page.until("document.querySelector('#one').open");
    assert!(page.text("#one-title").contains("victim"));

    // A question that is answered by no has no effect.
    page.click("[data-act=suspend]");
    page.until("!document.querySelector('#one-question').hidden");
    page.click("#one-no");
    page.until("document.querySelector('#one-question').hidden");
    let victim = || program.asked("victim");
    assert_eq!(victim().expect("it lives").state, State::Waiting);

    let act = |action: &str, said: &str| {
        page.click(&format!("[data-act={action}]"));
        page.until("!document.querySelector('#one-question').hidden");
        page.click("#one-yes");
        page.until(&format!("document.querySelector('#one-said').textContent.includes({said:?})"));
    };
    act("suspend", "suspended");
    assert_eq!(victim().expect("it lives").state, State::Suspended);
    act("resume", "resumed");
    assert_ne!(victim().expect("it lives").state, State::Suspended);
    page.evaluate("document.querySelector('#priority').value = 41");
    act("priority", "has priority 41");
    assert_eq!(victim().expect("it lives").priority, 41);
    page.click("[data-act=backtrace]");
    page.until("document.querySelector('#one-stack').textContent.includes('sleep')");
    act("cancel", "cancel");
    until("it has ended", victim, || victim().is_none());
    page.click("#one-close");
    page.until("document.querySelectorAll('#rows tbody tr').length === 0");
    page.evaluate(
        "(() => { const it = document.querySelector('#filter'); it.value = '';
            it.dispatchEvent(new Event('input')); })()",
    );
    page.until("document.querySelectorAll('#rows tbody tr').length > 0");
}

/// Groups by stack, and the members of the largest one.
fn groups(page: &Page) {
    page.click("#tab-groups");
    page.until(&format!(
        "document.querySelector('#rows tbody td.number')?.textContent === '{WAITERS}'"
    ));
    assert!(page.text("#rows tbody tr").contains("lock"), "{}", page.text("#rows tbody tr"));
    choose(page, "#by", "name");
    page.until(
        "[...document.querySelectorAll('#rows td.stack')].some(td => td.textContent === 'worker')",
    );
    page.click("#rows tbody tr button");
    page.until(&format!("document.querySelectorAll('#rows tbody tr').length === {WAITERS}"));
    assert_eq!(page.count("#within button"), 1);
    page.click("#within button");
    page.until(&format!("document.querySelectorAll('#rows tbody tr').length > {WAITERS}"));
    // Another order, and its reverse.
    let order = "document.querySelector('#rows th[aria-sort]:not([aria-sort=none])')";
    page.click("#rows th:nth-child(2) button");
    page.until(&format!("{order}.textContent === 'Name' && {order}.ariaSort === 'ascending'"));
    page.click("#rows th:nth-child(2) button");
    page.until(&format!("{order}.ariaSort === 'descending'"));
    page.until("document.querySelector('#rows tbody td.text').textContent.startsWith('worker')");
}

/// Takes a picture, which has content; keeps that of the wide page for the book if asked to.
fn picture(page: &Page, width: u32) {
    let picture = page.screenshot();
    assert_eq!(picture[16..20], width.to_be_bytes());
    if let (Some(folder), 1000) = (std::env::var_os(PICTURES), width) {
        let path = kumihimo_tests::root().join(folder).join("kumi-web.png");
        std::fs::write(&path, &picture).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

const ACCESS: &str = "browser::page_has_no_serious_accessibility_fault";

#[test]
fn page_has_no_serious_accessibility_fault() {
    if is_child(ACCESS) {
        program::body();
    }
    let Some(browser) = started(ACCESS) else { return };
    let folder = Folder::new("web-access");
    let _program = Program::start(&folder, ACCESS);
    let web = Web::start(&folder);
    let page = open(&browser, &web);
    for (width, scheme) in [(1000, Scheme::Light), (400, Scheme::Dark)] {
        page.resize(width, 900);
        page.prefer(scheme);
        for (tab, rows) in [
            ("microprocesses", "#rows tbody tr"),
            ("groups", "#rows td.stack"),
            ("locks", "#locks tbody tr"),
            ("latency", "#panel-latency"),
            ("profile", "#profile"),
        ] {
            // By a key: on a narrow page each look may move what lies below.
            page.evaluate(&format!("document.querySelector('#tab-{tab}').focus()"));
            page.press("Enter");
            page.until(&format!("document.querySelector({rows:?})?.offsetWidth > 0"));
            let Some(faults) = browser::accessibility_faults(ACCESS, &page) else { return };
            assert_eq!(faults, Vec::<String>::new(), "{tab} at {width}");
        }
        page.evaluate("document.querySelector('#tab-microprocesses').focus()");
        page.press("Enter");
        page.until("document.querySelector('#rows tbody tr')?.offsetWidth > 0");
        page.evaluate("document.querySelector('#rows tbody button').click()");
        page.until("document.querySelector('#one').open");
        let faults = browser::accessibility_faults(ACCESS, &page);
        assert_eq!(faults, Some(Vec::new()), "the dialog at {width}");
        page.press("Escape");
        page.until("!document.querySelector('#one').open");
    }
}

const TABS: &str = "browser::fifty_tabs_share_a_stream_and_a_dead_browser_leaves_nothing";

#[test]
fn fifty_tabs_share_a_stream_and_a_dead_browser_leaves_nothing() {
    if is_child(TABS) {
        program::body();
    }
    let Some(browser) = started(TABS) else { return };
    let folder = Folder::new("web-tabs");
    let _program = Program::start(&folder, TABS);
    let web = Web::start(&folder);
    let names = || -> Vec<Value> {
        let (code, said, complaints) = folder.kumi(&["ps", "--json", &web.pid().to_string()]);
        assert_eq!((code, complaints.as_str()), (0, ""));
        said.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
    };
    let named = |name: &str| names().iter().filter(|row| row["name"] == name).count();
    let address = format!("http://{}/", web.place);
    let mut pages = vec![open(&browser, &web)];
    for _ in 1..50 {
        let page = browser.open(&address);
        page.until("document.querySelectorAll('#rows tbody tr').length > 0");
        pages.push(page);
    }
    // The address spaces, and one list that all tabs show.
    until("one watcher for each view", names, || named("watcher") == 2);
    // A browser opens six connections to a server at most.
    assert!(named("connection") <= 6, "{:?}", names());
    // Every tab goes on.
    for page in &pages {
        page.evaluate("document.querySelector('#summary').textContent = ''");
        page.until("document.querySelector('#summary').textContent !== ''");
        is_clean(page, &web);
    }
    std::mem::forget(pages);
    browser.kill();
    until("the dead browser leaves nothing", names, || {
        named("watcher") == 0 && named("connection") == 0
    });
}

#[test]
fn page_without_a_session_asks_for_the_password() {
    const TEST: &str = "browser::page_without_a_session_asks_for_the_password";
    let Some(browser) = started(TEST) else { return };
    let folder = Folder::new("web-browser-password");
    let path = folder.path().join("password");
    std::fs::write(&path, "correct horse").expect("written");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, private).expect("changed");
    let path = path.to_str().expect("text");
    let web = Web::start_with(&folder, &["--listen", "127.0.0.1:0", "--password-file", path]);
    let page = browser.open(&format!("http://{}/", web.place));
    let give = |password: &str| {
        page.click("#password");
        page.type_text(password);
        page.press("Enter");
    };
    give("wrong");
    page.until_loaded("document.querySelector('#complaint')?.textContent.includes('wrong')");
    give("correct horse");
    page.until_loaded("document.querySelector('#status')?.textContent === 'live'");
    page.until_loaded("!document.querySelector('#spaces-none').hidden");
    assert!(page.text("#spaces-none").contains("No address space"));
    page.click("#sign-out");
    page.until_loaded("document.querySelector('#password') !== null");
}
