//! Progress of long operations: a bar on a terminal, nothing elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar, removed when dropped.
pub struct Watch(ProgressBar);

impl Watch {
    pub fn new(what: &'static str, length: usize) -> Watch {
        let style = ProgressStyle::with_template("  {msg:<28} {bar:40} {human_pos}/{human_len}");
        let bar = ProgressBar::new(length as u64).with_message(what);
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Watch(bar)
    }

    pub fn at(&self, position: usize) {
        self.0.set_position(position as u64);
    }

    /// An operation of unknown length.
    pub fn open(what: &'static str) -> Watch {
        let bar = ProgressBar::new_spinner().with_message(what);
        bar.enable_steady_tick(Duration::from_millis(120));
        Watch(bar)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
