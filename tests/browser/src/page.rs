//! A page in a tab of the browser.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::pipe::Pipe;

/// Number of looks, 5 ms apart, after which a condition counts as one that never comes. No limit of
/// time: a look takes longer on a busy machine.
const LOOKS: u32 = 36_000;

/// A colour scheme that a page may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Scheme {
    Light,
    Dark,
}

/// A page in a tab of its own, which is closed when this value is dropped.
#[derive(Debug)]
pub struct Page {
    pub(crate) pipe: Arc<Pipe>,
    target: String,
    pub(crate) session: String,
}

impl Page {
    pub(crate) fn new(pipe: Arc<Pipe>) -> Page {
        let whole = |method: &str, parameters| {
            pipe.call(None, method, parameters).unwrap_or_else(|e| panic!("{method}: {e}"))
        };
        let created = whole("Target.createTarget", json!({ "url": "about:blank" }));
        let target = text(&created, "targetId");
        let attached =
            whole("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        let page = Page { session: text(&attached, "sessionId"), target, pipe };
        for domain in ["Page", "Runtime", "Log", "Network", "Performance"] {
            page.request(&format!("{domain}.enable"), json!({}));
        }
        page.emulate(None);
        // Every tab draws frames, as if it were the one in front.
        page.request("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
        page
    }

    /// Makes a request of the protocol to the page, and returns the reply.
    ///
    /// # Panics
    /// If the browser refuses it.
    pub fn request(&self, method: &str, parameters: Value) -> Value {
        self.pipe
            .call(Some(&self.session), method, parameters)
            .unwrap_or_else(|e| panic!("{method}: {e}"))
    }

    /// Loads `url`, and waits until it is loaded. Earlier console messages and requests are
    /// forgotten.
    ///
    /// # Panics
    /// If the page cannot be loaded.
    pub fn go(&self, url: &str) {
        self.pipe.forget(&self.session);
        let reply = self.request("Page.navigate", json!({ "url": url }));
        if let Some(error) = reply["errorText"].as_str() {
            panic!("{url}: {error}");
        }
        let loaded = self.pipe.wait_event(&self.session, |events| {
            events.iter().any(|event| event.method == "Page.loadEventFired").then_some(())
        });
        loaded.unwrap_or_else(|e| panic!("{url}: {e}"));
    }

    /// Evaluates an expression of JavaScript; waits for its result if it is a promise.
    ///
    /// # Panics
    /// If the expression throws.
    pub fn evaluate(&self, expression: &str) -> Value {
        let parameters = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
            "userGesture": true,
        });
        let reply = self.pipe.call(Some(&self.session), "Runtime.evaluate", parameters);
        let mut reply = reply.unwrap_or_else(|e| panic!("{expression}: {e}"));
        if let Some(thrown) = reply.get("exceptionDetails") {
            let why = thrown["exception"]["description"].as_str();
            panic!("{expression}: {}", why.unwrap_or(&thrown.to_string()));
        }
        reply["result"]["value"].take()
    }

    /// Waits until an expression of JavaScript is true. It is evaluated at every change of the
    /// document and before every frame.
    ///
    /// # Panics
    /// If it throws, or does not become true.
    pub fn until(&self, condition: &str) {
        self.evaluate(&format!(
            "new Promise((done, fail) => {{
                let over = false;
                const look = () => {{
                    if (over) return;
                    try {{ over = Boolean({condition}); }} catch (e) {{ over = true; fail(e); }}
                    if (over) {{ changes.disconnect(); done(true); }}
                }};
                const frames = () => {{ look(); if (!over) requestAnimationFrame(frames); }};
                const changes = new MutationObserver(look);
                changes.observe(document, {{
                    subtree: true, childList: true, attributes: true, characterData: true,
                }});
                frames();
            }})"
        ));
    }

    /// As [`until`](Page::until), while another document may take the place of this one.
    ///
    /// # Panics
    /// If the condition throws, or does not become true.
    pub fn until_loaded(&self, condition: &str) {
        for _ in 0..LOOKS {
            let expression = format!("document.readyState === 'complete' && Boolean({condition})");
            let parameters = json!({ "expression": expression, "returnByValue": true });
            // Without a document, or with one that goes, the request is refused.
            let Ok(reply) = self.pipe.call(Some(&self.session), "Runtime.evaluate", parameters)
            else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let thrown = reply.get("exceptionDetails");
            assert!(thrown.is_none(), "{condition}: {thrown:?}");
            if reply["result"]["value"] == true {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{condition} does not become true in {LOOKS} looks");
    }

    /// Returns the text of the first element that matches `selector`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn text(&self, selector: &str) -> String {
        let text = self.evaluate(&format!("document.querySelector({selector:?}).innerText"));
        text.as_str().expect("an element has a text").to_owned()
    }

    /// Returns the number of elements that match `selector`.
    #[must_use]
    pub fn count(&self, selector: &str) -> u64 {
        let count = self.evaluate(&format!("document.querySelectorAll({selector:?}).length"));
        count.as_u64().expect("a length is a number")
    }

    /// Sets the size of the page in pixels.
    pub fn resize(&self, width: u32, height: u32) {
        self.request(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false }),
        );
    }

    /// Sets the colour scheme that the page is asked for.
    pub fn prefer(&self, scheme: Scheme) {
        self.emulate(Some(if scheme == Scheme::Dark { "dark" } else { "light" }));
    }

    /// Sets what the page is asked for. It never moves slowly: an element would be elsewhere by
    /// the time of a click.
    fn emulate(&self, scheme: Option<&str>) {
        let scheme = scheme.map(|value| json!({ "name": "prefers-color-scheme", "value": value }));
        let still = json!({ "name": "prefers-reduced-motion", "value": "reduce" });
        let features: Vec<Value> = scheme.into_iter().chain([still]).collect();
        self.request("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Returns a picture of the visible part of the page, in the format PNG.
    ///
    /// # Panics
    /// If the browser sends no picture.
    #[must_use]
    pub fn screenshot(&self) -> Vec<u8> {
        let reply = self.request("Page.captureScreenshot", json!({ "format": "png" }));
        STANDARD.decode(text(&reply, "data")).expect("a picture in base64")
    }

    /// Returns the errors that the page has caused since it was loaded: uncaught exceptions, calls
    /// of `console.error`, failed requests, violations of the content security policy.
    #[must_use]
    pub fn console_errors(&self) -> Vec<String> {
        let of = |event: crate::pipe::Event| {
            let it = event.parameters;
            match event.method.as_str() {
                "Runtime.exceptionThrown" => Some(it["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if it["type"] == "error" || it["type"] == "assert" => {
                    Some(it["args"].to_string())
                }
                "Log.entryAdded" if it["entry"]["level"] == "error" => {
                    Some(it["entry"].to_string())
                }
                _ => None,
            }
        };
        self.pipe.events(&self.session).into_iter().filter_map(of).collect()
    }

    /// Returns the addresses of all requests since the page was loaded, with its own first.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let all = self.pipe.events(&self.session).into_iter();
        let all = all.filter(|event| event.method == "Network.requestWillBeSent");
        all.map(|event| text(&event.parameters["request"], "url")).collect()
    }

    /// Returns Chromium's own measurements of the page, among them `TaskDuration` and
    /// `ScriptDuration`, in seconds of the page's main thread, and `JSHeapUsedSize` in bytes.
    #[must_use]
    pub fn metrics(&self) -> HashMap<String, f64> {
        let reply = self.request("Performance.getMetrics", json!({}));
        let all = reply["metrics"].as_array().into_iter().flatten();
        all.filter_map(|one| Some((one["name"].as_str()?.to_owned(), one["value"].as_f64()?)))
            .collect()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.pipe.call(None, "Target.closeTarget", json!({ "targetId": self.target }));
        self.pipe.forget(&self.session);
    }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}")).to_owned()
}
