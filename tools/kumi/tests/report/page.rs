//! The page in a headless browser: what it shows of a known trace, and that it can be used.

use kumihimo_tests::browser::{self, Browser, Page, Scheme};
use kumihimo_trace::script::{HOSTILE, Script};

use crate::bed::Folder;

/// The page of a report of `script`, loaded with a width.
struct Shown {
    page: Page,
    _browser: Browser,
    folder: Folder,
}

impl Shown {
    fn new(name: &str, script: &Script, width: u32) -> Option<Shown> {
        let browser = browser::start(name)?;
        let folder = Folder::new(name);
        folder.trace("run.perfetto", script);
        let (output, said) = folder.report(&["run.perfetto"]);
        assert!(output.status.success(), "{said}");
        let page = browser.blank();
        page.resize(width, 800);
        page.go(&folder.address("report.html"));
        page.until("document.body.dataset.state");
        assert_eq!(
            page.evaluate("document.body.dataset.state"),
            "ready",
            "{}",
            page.text("#verdict")
        );
        Some(Shown { page, _browser: browser, folder })
    }

    /// The page has caused no error and asked nobody for anything.
    fn is_clean(&self) {
        assert_eq!(self.page.console_errors(), Vec::<String>::new());
        let own = self.folder.address("report.html");
        let elsewhere = |url: &String| !url.starts_with(&own) && !url.starts_with("data:,");
        let requests = self.page.requests();
        assert!(requests.contains(&own) && !requests.iter().any(elsewhere), "{requests:?}");
    }

    /// A place on the canvas: a part of the timeline's width, and a row.
    fn on_timeline(&self, part: f64, row: u32) -> (f64, f64) {
        let (x, y) = self.page.place("#timeline", 0.0, 0.0);
        let width = self.page.evaluate("document.querySelector('#timeline').clientWidth");
        let width = width.as_f64().expect("a width");
        // The axis is 24 pixels high, the names are 64 wide, and a row is 28 high.
        (x + 64.0 + (width - 64.0) * part, y + 24.0 + 28.0 * (f64::from(row) + 0.5))
    }

    fn range(&self) -> String {
        self.page.text("#range")
    }

    /// Does something that has to change what is in sight, and returns the new text of it.
    fn moves(&self, act: impl FnOnce()) -> String {
        let before = self.range();
        act();
        self.page.until(&format!("document.querySelector('#range').innerText !== {before:?}"));
        self.range()
    }
}

#[test]
fn every_section_shows_the_known_trace() {
    let name = "every_section_shows_the_known_trace";
    let Some(shown) = Shown::new(name, &Script::known(), 1000) else { return };
    let page = &shown.page;
    let has = |selector: &str, texts: &[&str]| {
        let text = page.text(selector);
        for wanted in texts {
            assert!(text.contains(wanted), "{selector} lacks {wanted:?}: {text}");
        }
    };
    has("#verdict", &["found violations"]);
    has("#summary-facts", &["<b>server</b>", "40.00 ms", "stalls"]);
    page.click("#summary summary");
    has("#check", &["VIOLATED", "1 INVERSIONS"]);
    assert_eq!(page.count("#micros tbody tr:not(.space)"), 3);
    has("#micros", &["alpha #", HOSTILE, "low #", "7.000 ms", "25.00 ms", "20.00 ms"]);
    has("#locks", &["mutex at 0x7f0000001000", "20.00 ms", HOSTILE, "alpha #"]);
    has("#reasons", &["mutex", "sleep", "14.00 ms"]);
    assert!(page.count("#histogram tbody tr") >= 3);
    has("#latency-facts", &["14.00 ms", "50 % within"]);
    has("#inversions", &["inversion", "8 step(s) of VP 1", "stall", "VP 1 was overridden"]);
    has("#stalls", &["stall", "14.00 ms", "low #"]);
    has("#stalls-note", &["1 of 4"]);
    has("#licences", &["MIT", "Apache"]);
    // Hostile names made no elements.
    assert_eq!(page.count("#x"), 0);
    // The canvas has the colours of three microprocesses, idleness, background and text.
    let colours = page.evaluate(
        "(() => {
            const canvas = document.querySelector('#timeline');
            const { data } = canvas.getContext('2d')
              .getImageData(0, 24, canvas.width, canvas.height - 24);
            return new Set(new Uint32Array(data.buffer)).size;
        })()",
    );
    assert!(colours.as_u64().expect("a number") >= 6, "{colours}");
    shown.is_clean();
}

#[test]
fn timeline_moves_by_mouse_keys_and_buttons() {
    let name = "timeline_moves_by_mouse_keys_and_buttons";
    let Some(shown) = Shown::new(name, &Script::known(), 1000) else { return };
    let page = &shown.page;
    let whole = shown.range();
    assert!(whole.starts_with("0 ns to 40.0") && whole.ends_with("(40.00 ms)"), "{whole}");
    let middle = shown.on_timeline(0.5, 0);
    let zoomed = shown.moves(|| page.wheel(middle, -240.0));
    // 1.0015^-240, around the middle.
    assert!(zoomed.ends_with("(27.91 ms)"), "{zoomed}");
    let dragged = shown.moves(|| page.drag(middle, (middle.0 + 100.0, middle.1)));
    assert!(dragged.ends_with("(27.91 ms)"), "{dragged}");
    page.click("#whole");
    page.until(&format!("document.querySelector('#range').innerText === {whole:?}"));
    page.evaluate("document.querySelector('#timeline').focus()");
    for (key, length) in [("+", "20.00"), ("w", "10.00"), ("ArrowUp", "5.000")] {
        let range = shown.moves(|| page.press(key));
        assert!(range.ends_with(&format!("({length} ms)")), "{key}: {range}");
    }
    for key in ["ArrowLeft", "a", "ArrowRight", "d"] {
        let range = shown.moves(|| page.press(key));
        assert!(range.ends_with("(5.000 ms)"), "{key}: {range}");
    }
    for (key, length) in [("-", "10.00"), ("s", "20.00")] {
        let range = shown.moves(|| page.press(key));
        assert!(range.ends_with(&format!("({length} ms)")), "{key}: {range}");
    }
    assert_eq!(shown.moves(|| page.press("0")), whole);
    for (button, length) in [("#zoom-in", "20.00"), ("#zoom-out", "40.00")] {
        let range = shown.moves(|| page.click(button));
        assert!(range.ends_with(&format!("({length} ms)")), "{button}: {range}");
    }
    shown.is_clean();
}

#[test]
fn spans_are_selected_found_and_listed() {
    let name = "spans_are_selected_found_and_listed";
    let Some(shown) = Shown::new(name, &Script::known(), 1000) else { return };
    let page = &shown.page;
    // At 10 ms, VP 0 runs the second one, and VP 1 nothing.
    let (x, y) = shown.on_timeline(0.25, 0);
    page.click_at(x, y);
    page.until("document.querySelector('#details').innerText.startsWith('VP 0: </script>')");
    assert!(page.text("#details").ends_with("from 5.000000 ms on, for 21.00 ms."));
    let (x, y) = shown.on_timeline(0.25, 1);
    page.click_at(x, y);
    page.until("document.querySelector('#details').innerText === 'Nothing is selected.'");
    let (x, y) = shown.on_timeline(0.9, 0);
    page.click_at(x, y);
    page.until("document.querySelector('#details').innerText.startsWith('VP 0: idle')");
    // By the keyboard: what is in the middle of the whole run.
    page.press("Enter");
    page.until("document.querySelector('#details').innerText.startsWith('VP 0: </script>')");
    page.click("#find");
    page.type_text("ALPHA");
    page.until(
        "document.querySelector('#matches').innerText === '1 microprocesses, 2 times on a VP'",
    );
    page.evaluate("document.querySelector('#timeline').focus()");
    // Nothing is selected any more, so that the first time comes next.
    page.press("Escape");
    for (key, from) in [("n", "2.000000 ms"), ("n", "26.000000 ms"), ("p", "2.000000 ms")] {
        page.press(key);
        page.until(&format!(
            "document.querySelector('#details').innerText.includes('VP 0: alpha #')
             && document.querySelector('#details').innerText.includes({from:?})"
        ));
    }
    page.press("p");
    page.until("document.querySelector('#details').innerText === 'No earlier time.'");
    page.click("#visible-box summary");
    page.until("document.querySelectorAll('#visible tbody tr').length === 5");
    let list = page.text("#visible");
    assert!(list.contains("idle") && list.contains("low #"), "{list}");
    shown.is_clean();
}

#[test]
fn findings_and_names_lead_to_the_timeline() {
    let name = "findings_and_names_lead_to_the_timeline";
    let Some(shown) = Shown::new(name, &Script::known(), 1000) else { return };
    let page = &shown.page;
    for (link, text, range) in [
        ("#inversions tbody tr a", "VP 1: marked from 16.000000 ms", "9.000 ms to 30.000 ms"),
        ("#stalls tbody tr a", "low #", "0 ns to 42.00 ms"),
        ("#locks tbody tr a", "alpha #", "0 ns to 40.00 ms"),
    ] {
        page.evaluate("document.querySelector('#timeline').blur()");
        page.click(link);
        page.until("document.activeElement.id === 'timeline'");
        let details = page.text("#details");
        assert!(details.starts_with(text), "{link}: {details}");
        // The place and as much before and behind it, within the run.
        let shows = shown.range();
        assert!(link != "#inversions tbody tr a" || shows.starts_with("9.00"), "{shows} {range}");
    }
    // The address has the place, so that it can be sent to somebody.
    page.click("#inversions tbody tr a");
    let address = page.evaluate("location.href");
    let address = address.as_str().expect("an address").to_owned();
    assert!(address.contains("#at=0,16000000,23000000,1,"), "{address}");
    page.go("about:blank");
    page.go(&address);
    page.until("document.querySelector('#details').innerText.startsWith('VP 1: marked from 16.')");
    shown.is_clean();
}

#[test]
fn tables_sort_and_filter() {
    let Some(shown) = Shown::new("tables_sort_and_filter", &Script::busy(60_000), 1000) else {
        return;
    };
    let page = &shown.page;
    // Of 2,000 rows, those in sight are elements.
    assert_eq!(page.text("#shown"), "2,000 of 2,000");
    assert!(page.count("#micros tbody tr") < 100);
    let column = |n: u32| {
        page.evaluate(&format!(
            "[...document.querySelectorAll('#micros tbody tr:not(.space) td:nth-child({n})')]
               .map((cell) => cell.innerText)"
        ))
    };
    let runs = || -> Vec<u64> {
        let texts = column(4);
        let texts = texts.as_array().expect("cells").iter();
        let number = |text: &serde_json::Value| {
            text.as_str().expect("a text").replace(',', "").parse().expect("a number")
        };
        texts.map(number).collect()
    };
    page.click("#micros th:nth-child(4) button");
    assert!(runs().is_sorted_by(|a, b| a >= b) && runs().first() > runs().last(), "{:?}", runs());
    page.click("#micros th:nth-child(4) button");
    assert!(runs().is_sorted(), "{:?}", runs());
    assert_eq!(page.evaluate("document.querySelector('[aria-sort]').ariaSort"), "ascending");
    let first = column(1);
    page.evaluate("document.querySelector('#micros').scrollTop = 20000");
    page.until(&format!(
        "document.querySelector('#micros tbody tr:not(.space) td').innerText !== {}",
        first[0]
    ));
    page.click("#filter");
    page.type_text("worker-1999");
    page.until("document.querySelector('#shown').innerText === '1 of 2,000'");
    assert_eq!(page.count("#micros tbody tr:not(.space)"), 1);
    // Another choice of latencies is another histogram.
    let all = page.text("#latency-facts");
    page.evaluate(
        "(() => {
            const select = document.querySelector('#latency-of');
            select.selectedIndex = 1;
            select.dispatchEvent(new Event('change'));
        })()",
    );
    assert_ne!(page.text("#latency-facts"), all);
    shown.is_clean();
}

#[test]
fn page_is_usable_narrow_dark_and_by_keyboard() {
    let name = "page_is_usable_narrow_dark_and_by_keyboard";
    let Some(shown) = Shown::new(name, &Script::known(), 400) else { return };
    let page = &shown.page;
    // Nothing is wider than the window, so that only boxes scroll sideways.
    assert_eq!(page.evaluate("document.documentElement.scrollWidth"), 400);
    let light = "getComputedStyle(document.body).backgroundColor";
    page.prefer(Scheme::Light);
    assert_eq!(page.evaluate(light), "rgb(255, 255, 255)");
    page.prefer(Scheme::Dark);
    assert_eq!(page.evaluate(light), "rgb(20, 23, 27)");
    // Every control is reached by Tab, and shows that it is.
    let mut reached = std::collections::BTreeSet::new();
    for _ in 0..150 {
        page.press("Tab");
        // Behind the last one, the focus leaves the page.
        if page.evaluate("document.activeElement === document.body") == true {
            break;
        }
        let id = page.evaluate("document.activeElement.id");
        reached.insert(id.as_str().expect("a text").to_owned());
        let outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle");
        assert!(outline == "solid" || outline == "auto", "{id}: {outline}");
    }
    for id in ["zoom-in", "zoom-out", "whole", "find", "timeline", "filter", "micros", "latency-of"]
    {
        assert!(reached.contains(id), "{id} is not reached: {reached:?}");
    }
    // Every control has a name.
    let nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select, [tabindex]')].filter((one) =>
            !one.innerText && !one.ariaLabel && !(one.labels && one.labels.length)
            && !one.getAttribute('aria-labelledby')).map((one) => one.outerHTML)",
    );
    assert_eq!(nameless, serde_json::json!([]));
    shown.is_clean();
}

#[test]
fn page_has_no_serious_accessibility_fault() {
    let name = "page_has_no_serious_accessibility_fault";
    let Some(shown) = Shown::new(name, &Script::known(), 1000) else { return };
    for scheme in [Scheme::Light, Scheme::Dark] {
        shown.page.prefer(scheme);
        let Some(faults) = browser::accessibility_faults(name, &shown.page) else { return };
        assert_eq!(faults, Vec::<String>::new(), "{scheme:?}");
        // What is folded at first is examined, too.
        shown
            .page
            .evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })");
        let faults = browser::accessibility_faults(name, &shown.page);
        assert_eq!(faults, Some(Vec::new()), "{scheme:?}, unfolded");
    }
}

/// A trace whose clock went wrong: an event 146 years after the start.
#[test]
fn absurd_times_do_not_hang_the_page() {
    use kumihimo_trace::record::{Kind, Record};
    let mut script = Script::known();
    script.add(0, 1 << 62, Record::new(Kind::IdleBegin));
    script.add(0, (1 << 62) + 1000, Record::new(Kind::IdleEnd));
    let Some(shown) = Shown::new("absurd_times_do_not_hang_the_page", &script, 1000) else {
        return;
    };
    let page = &shown.page;
    page.evaluate("document.querySelector('#timeline').focus()");
    for _ in 0..60 {
        page.press("w");
        page.press("d");
    }
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))");
    assert!(shown.range().contains(" s to "), "{}", shown.range());
    page.press("0");
    page.until("document.querySelector('#range').innerText.startsWith('0 ns to ')");
    shown.is_clean();
}

#[test]
fn damaged_report_says_so() {
    let Some(shown) = Shown::new("damaged_report_says_so", &Script::known(), 1000) else { return };
    let path = shown.folder.file("report.html");
    let text = std::fs::read_to_string(&path).expect("readable");
    let at = text.find("id=\"columns\">").expect("the block") + "id=\"columns\">".len();
    let damaged = format!("{}AAAA{}", &text[..at], &text[at + 4..]);
    std::fs::write(&path, damaged).expect("room");
    shown.page.go(&shown.folder.address("report.html"));
    shown.page.until("document.body.dataset.state === 'failed'");
    assert!(shown.page.text("#verdict").starts_with("The report cannot be shown: "));
}

/// Writes the picture of the book if it is told where: `KUMI_TEST_PICTURES=docs/src/images`.
#[test]
fn picture_of_the_book() {
    let Some(shown) = Shown::new("picture_of_the_book", &Script::busy(60_000), 1000) else {
        return;
    };
    let page = &shown.page;
    page.prefer(Scheme::Light);
    page.resize(1000, 1150);
    page.evaluate("document.querySelector('#timeline').focus()");
    page.evaluate("scrollTo(0, 0)");
    for _ in 0..10 {
        page.press("w");
    }
    page.press("Enter");
    page.until("!document.querySelector('#details').innerText.startsWith('Nothing')");
    page.evaluate("document.activeElement.blur()");
    let picture = page.screenshot();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000);
    if let Some(folder) = std::env::var_os("KUMI_TEST_PICTURES") {
        let path = kumihimo_tests::root().join(folder).join("kumi-report.png");
        std::fs::write(&path, picture).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    shown.is_clean();
}
