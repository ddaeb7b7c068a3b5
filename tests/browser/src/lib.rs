//! Driver of a headless Chromium for tests and benchmarks of pages.
//!
//! [`Browser::start`] starts the installed Chromium, and [`Browser::open`] opens a page in it. A
//! [`Page`] evaluates JavaScript, clicks, presses keys, waits for conditions, and lists the page's
//! console errors and requests. The driver speaks Chromium's own protocol over two pipes, so no
//! port is open and no second program (chromedriver) is needed.
//!
//! Functions of this crate panic where the browser refuses a request or does not answer: a test
//! then fails with the reason.

mod input;
mod page;
mod pipe;

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

pub use page::{Page, Scheme};
use pipe::{PATIENCE, Pipe};

/// Names of the browser's program, in the order in which they are looked for.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Options of the browser. It fetches nothing on its own, and pages in the background run as fast
/// as the visible one. The sandbox needs rights that containers and root lack; only pages of the
/// test itself are opened.
const OPTIONS: [&str; 16] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-renderer-backgrounding",
    "--disable-sync",
    "--disable-breakpad",
    "--hide-scrollbars",
    "--password-store=basic",
];

/// A running headless browser. It ends when this value is dropped.
#[derive(Debug)]
pub struct Browser {
    pipe: Arc<Pipe>,
    child: Child,
    folder: PathBuf,
}

/// Returns the path of an installed Chromium.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    PROGRAMS
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|program| program.is_file())
}

impl Browser {
    /// Starts the installed browser with `options` besides the usual ones. Returns `None` if none
    /// is installed.
    ///
    /// # Panics
    /// If the browser does not start.
    #[must_use]
    pub fn start(options: &[&str]) -> Option<Browser> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let program = find()?;
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kumi-browser-{}-{n}", std::process::id()));
        std::fs::create_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let log = File::create(folder.join("log")).expect("the folder is writable");
        // The browser reads requests from descriptor 3 and answers on 4. The shell moves the two
        // pipes there, which std can only connect to 0 and 1.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null", "sh"])
            .arg(&program)
            .args(OPTIONS)
            .args(options)
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("about:blank")
            .env("HOME", &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("a shell");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let browser = Browser { pipe: Pipe::new(to, from), child, folder };
        if let Err(e) = browser.pipe.call(None, "Browser.getVersion", json!({})) {
            let log = std::fs::read_to_string(browser.folder.join("log")).unwrap_or_default();
            panic!("{} does not start: {e}\n{log}", program.display());
        }
        Some(browser)
    }

    /// Opens `url` in a new tab, and waits until it is loaded.
    ///
    /// # Panics
    /// If the page cannot be loaded.
    #[must_use]
    pub fn open(&self, url: &str) -> Page {
        let page = self.blank();
        page.go(url);
        page
    }

    /// Opens an empty tab. Settings of the page, such as its size, can so precede its first load.
    #[must_use]
    pub fn blank(&self) -> Page {
        Page::new(self.pipe.clone())
    }

    /// Makes a request of the protocol to the browser itself, and returns the reply.
    ///
    /// # Panics
    /// If the browser refuses it.
    pub fn request(&self, method: &str, parameters: Value) -> Value {
        self.pipe.call(None, method, parameters).unwrap_or_else(|e| panic!("{method}: {e}"))
    }

    /// Returns the highest resident memory of any of the browser's page processes, in bytes.
    #[must_use]
    pub fn peak_memory(&self) -> u64 {
        let all = self.request("SystemInfo.getProcessInfo", json!({}));
        let renderers = all["processInfo"].as_array().into_iter().flatten();
        let renderers = renderers.filter(|one| one["type"] == "renderer");
        renderers.filter_map(|one| peak_of(one["id"].as_u64()?)).max().unwrap_or(0)
    }

    /// Kills the browser at once, with all its processes, as a crash would.
    pub fn kill(mut self) {
        self.kill_group();
    }

    fn kill_group(&mut self) {
        // Not reaped yet, so the number is the group's.
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Returns the highest resident memory of process `pid`.
fn peak_of(pid: u64) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A clean end writes the profile, which is of no use; but it ends the helper processes in
        // order.
        let _ = self.pipe.call(None, "Browser.close", json!({}));
        self.pipe.wait_for_end(Instant::now() + PATIENCE);
        self.kill_group();
        remove(&self.folder);
    }
}

/// Removes the browser's folder. A helper process that ends late may still create a file there.
fn remove(folder: &Path) {
    for _ in 0..8 {
        if std::fs::remove_dir_all(folder).is_ok() || !folder.exists() {
            return;
        }
    }
}
