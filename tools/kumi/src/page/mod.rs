//! Pages for a browser, each a single document without requests to anywhere.
//!
//! [`Page`] assembles one from styles, scripts and a body, all embedded, and states a policy that
//! allows exactly these: a text of another program that ends up in the page as markup runs
//! nothing. `style.css` is the look of all pages, for light and dark schemes and narrow windows.
//! Data reach a script as a block of JSON or base64 that is never executed.

mod licences;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The look of all pages.
pub const STYLE: &str = include_str!("style.css");

/// A document with everything that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Title, as text.
    pub title: &'a str,
    /// Style sheets, after [`STYLE`].
    pub styles: &'a [&'a str],
    /// The content of `<body>`, as markup.
    pub body: &'a str,
    /// Scripts, run in this order when the document is complete.
    pub scripts: &'a [&'a str],
    /// Sources that the scripts may connect to, as in the policy's `connect-src`: `'none'` or
    /// `'self'`.
    pub connect: &'a str,
}

impl Page<'_> {
    /// Returns the content security policy of the page, for the document or a header.
    pub fn policy(&self) -> String {
        let scripts = sources(self.scripts.iter().copied());
        let styles = sources([STYLE].into_iter().chain(self.styles.iter().copied()));
        format!(
            "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; \
             connect-src {}; base-uri 'none'; form-action 'none'",
            self.connect
        )
    }

    /// Writes the document. `data` writes the blocks of data, by [`json_block`] and
    /// [`binary_block`].
    ///
    /// # Errors
    /// As writing to `out`.
    pub fn write<W: Write>(
        &self,
        out: &mut W,
        data: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        writeln!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
        let policy = self.policy();
        writeln!(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">")?;
        writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
        writeln!(out, "<meta name=\"color-scheme\" content=\"light dark\">")?;
        // Without it a browser asks the server for a picture.
        writeln!(out, "<link rel=\"icon\" href=\"data:,\">")?;
        writeln!(out, "<title>{}</title>", Markup(self.title))?;
        for style in [STYLE].iter().chain(self.styles) {
            writeln!(out, "<style>{style}</style>")?;
        }
        writeln!(out, "</head>\n<body>\n{}", self.body)?;
        data(out)?;
        for script in self.scripts {
            writeln!(out, "<script>{script}</script>")?;
        }
        writeln!(out, "</body>\n</html>")
    }
}

/// Returns the sources of a policy that allow exactly the embedded `texts`.
fn sources<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = texts
        .map(|text| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes()))))
        .collect();
    if all.is_empty() { "'none'".to_owned() } else { all.join(" ") }
}

/// Writes `value` as a block that `JSON.parse(document.getElementById(id).textContent)` reads.
///
/// # Errors
/// As writing to `out`.
pub fn json_block(out: &mut impl Write, id: &str, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    writeln!(out, "<script type=\"application/json\" id=\"{id}\">{}</script>", in_script(&text))
}

/// Writes what `fill` writes as a block in base64.
///
/// # Errors
/// As writing to `out`.
pub fn binary_block<W: Write>(
    out: &mut W,
    id: &str,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write!(out, "<script type=\"application/octet-stream\" id=\"{id}\">")?;
    let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
    fill(&mut encoder)?;
    encoder.finish()?;
    drop(encoder);
    writeln!(out, "</script>")
}

/// Returns JSON in which nothing ends a script or begins a comment, and no character ends a line of
/// JavaScript. All of these are in strings, where an escape means the same.
pub fn in_script(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => text.push(c),
        }
    }
    text
}

/// A text in the markup of a page.
pub struct Markup<'a>(pub(crate) &'a str);

impl std::fmt::Display for Markup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write as _;
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

pub use licences::licences;
