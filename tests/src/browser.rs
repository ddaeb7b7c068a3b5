//! Headless Chromium for the tests of pages; see [`kumihimo_browser`].

pub use kumihimo_browser::{Browser, Page, Scheme};

/// Starts the browser. If none is installed, reports `test` as skipped and returns `None`.
///
/// # Panics
/// If the browser does not start.
#[must_use]
pub fn start(test: &str) -> Option<Browser> {
    start_with(test, &[])
}

/// As [`start`], with options for the browser, such as `--ignore-certificate-errors`.
///
/// # Panics
/// As [`start`].
#[must_use]
pub fn start_with(test: &str, options: &[&str]) -> Option<Browser> {
    let browser = Browser::start(options);
    if browser.is_none() {
        crate::skip(test, "no Chromium. To turn on: apt-get install chromium");
    }
    browser
}

/// Returns the serious and critical accessibility faults that axe-core finds in the page, each with
/// its elements. `KUMI_TEST_AXE` names the file `axe.min.js`; without it, reports `test` as skipped
/// and returns `None`.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn accessibility_faults(test: &str, page: &Page) -> Option<Vec<String>> {
    let Some(path) = std::env::var_os("KUMI_TEST_AXE") else {
        let how = "npm install --prefix target/axe axe-core, and KUMI_TEST_AXE=\
                   $PWD/target/axe/node_modules/axe-core/axe.min.js";
        crate::skip(test, &format!("no axe-core. To turn on: {how}"));
        return None;
    };
    let axe = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    page.evaluate(&format!("{axe}; 0"));
    let faults = page.evaluate(
        "axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations
            .filter((fault) => fault.impact === 'serious' || fault.impact === 'critical')
            .map((fault) => `${fault.id}: ${fault.nodes.map((node) => node.html).join(' ')}`))",
    );
    let faults = faults.as_array().expect("a list").iter();
    Some(faults.map(|fault| fault.as_str().expect("a text").to_owned()).collect())
}
