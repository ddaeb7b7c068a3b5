//! `report`: the page that `kumi trace report` makes of a trace of a million records: time to make
//! it, its size, and what it costs a browser until it can be used.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use kumihimo_browser::Browser;
use kumihimo_trace::script::Script;

use crate::bench::contender::directory::Directory;
use crate::bench::contender::{Contender, Missing, Trouble};
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;

const BENCH: &str = "report";
const RECORDS: usize = 1_000_000;

/// Makes the page once for each run, and loads it in a browser of its own.
pub fn run(options: &Options, missing: &mut Missing) -> Vec<Sample> {
    let mut samples = Vec::new();
    if let Err(trouble) = measure(options, &mut samples) {
        missing.note(BENCH, trouble);
    }
    samples
}

fn measure(options: &Options, samples: &mut Vec<Sample>) -> Result<(), Trouble> {
    let directory = Directory::new(BENCH)?;
    let contender = plan::report(options);
    let trace = directory.path().join("trace");
    let page = directory.path().join("report.html");
    let written = File::create(&trace).and_then(|file| Script::busy(RECORDS).write(file));
    written.map_err(|e| format!("{}: {e}", trace.display()))?;
    for _ in 0..options.runs {
        let mut add = |line: String| -> Result<(), Trouble> {
            let identity = Contender::identity(&contender, BENCH, 1);
            samples.push(Sample::parse(&format!("{line} records={RECORDS}"), &identity)?);
            Ok(())
        };
        add(format!("written {} s", make(&trace, &page)?))?;
        let size = page.metadata().map_err(|e| e.to_string())?.len();
        add(format!("size {size} bytes"))?;
        let Some(browser) = Browser::start(&[]) else {
            return Err(Trouble::Refused("no Chromium: apt-get install chromium".to_owned()));
        };
        let shown = browser.blank();
        let before = shown.metrics();
        let begun = Instant::now();
        shown.go(&format!("file://{}", page.display()));
        shown.until("document.body.dataset.state");
        // Two frames later, the timeline is drawn.
        shown.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))");
        let usable = begun.elapsed().as_secs_f64();
        if shown.evaluate("document.body.dataset.state") != "ready" {
            return Err(shown.text("#verdict").into());
        }
        let after = shown.metrics();
        let of = |name: &str| after[name] - before.get(name).copied().unwrap_or(0.0);
        add(format!("main_thread {} s", of("TaskDuration")))?;
        add(format!("script {} s", of("ScriptDuration")))?;
        add(format!("usable {usable} s"))?;
        add(format!("memory {} bytes heap:={}", browser.peak_memory(), after["JSHeapUsedSize"]))?;
        // A zoom into the middle, to the next frame.
        let zoom = shown.evaluate(
            "(async () => {
                const canvas = document.querySelector('#timeline');
                const key = new KeyboardEvent('keydown', { key: 'w' });
                const begun = performance.now();
                for (let i = 0; i < 20; i++) {
                    canvas.dispatchEvent(key);
                    await new Promise(requestAnimationFrame);
                }
                return performance.now() - begun;
            })()",
        );
        let zoom = zoom.as_f64().ok_or("no time of the zoom")?;
        add(format!("zoom {} s", zoom / 20.0 / 1e3))?;
    }
    Ok(())
}

/// Makes the page. Returns the time in seconds.
fn make(trace: &Path, page: &Path) -> Result<f64, Trouble> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(["trace", "report"]).arg(trace).arg("-o").arg(page).stdin(Stdio::null());
    let begun = Instant::now();
    let output = command.output().map_err(|e| format!("kumi trace report: {e}"))?;
    let took = begun.elapsed().as_secs_f64();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("kumi trace report: {}: {said}", output.status).into());
    }
    Ok(took)
}
