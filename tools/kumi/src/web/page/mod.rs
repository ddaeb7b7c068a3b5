//! The pages: what a browser shows, as files in the program.
//!
//! `page.html` is the live page (its look is that of all pages, with additions in `page.css`),
//! `sign-in.html` asks for the password. `page.js` follows the views, draws them by `tables.js` and
//! steers by `dialog.js`. `stream.js` receives the events, in a worker that all tabs share
//! (`worker.js`): a browser opens six connections to a server at most. The scripts put names of
//! microprocesses into the page as text, never as markup.

use crate::page::STYLE;
use crate::web::http::response::{Response, kind};

/// Place in a page for the text that requests of this session send.
const PAGE_KEY: &str = "{{page-key}}";
/// Place for a line about the last attempt.
const COMPLAINT: &str = "{{complaint}}";

/// Files that need no session: they contain nothing of this machine.
const FILES: &[(&str, &str, &str)] = &[
    ("/style.css", kind::CSS, STYLE),
    ("/page.css", kind::CSS, include_str!("page.css")),
    ("/page.js", kind::JS, include_str!("page.js")),
    ("/tables.js", kind::JS, include_str!("tables.js")),
    ("/dialog.js", kind::JS, include_str!("dialog.js")),
    ("/stream.js", kind::JS, include_str!("stream.js")),
    ("/worker.js", kind::JS, include_str!("worker.js")),
    ("/icon.svg", kind::SVG, include_str!("icon.svg")),
];

/// A file by its path.
pub fn file(path: &str) -> Option<Response> {
    let (_, kind, text) = FILES.iter().find(|(of, ..)| *of == path)?;
    Some(Response::new(kind, text.as_bytes()))
}

/// The live page. `page_key` is of digits and letters.
pub fn live(page_key: &str) -> Response {
    let page = include_str!("page.html").replacen(PAGE_KEY, page_key, 1);
    Response::new(kind::HTML, page.into_bytes())
}

/// The page that asks for the password. `complaint` is the server's own text.
pub fn sign_in(status: u16, complaint: &str) -> Response {
    let page = include_str!("sign-in.html").replacen(COMPLAINT, complaint, 1);
    Response::new(kind::HTML, page.into_bytes()).status(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_places_and_name_existing_files() {
        let (live, sign_in) = (include_str!("page.html"), include_str!("sign-in.html"));
        assert!(live.contains(PAGE_KEY) && sign_in.contains(COMPLAINT));
        for page in [live, sign_in] {
            assert!(
                !page.contains("style=") && !page.contains(" onclick"),
                "the policy forbids it"
            );
            for named in page.split("=\"/").skip(1) {
                let path = format!("/{}", named.split('"').next().expect("an end"));
                let is_page = ["/", "/sign-in", "/sign-out"].contains(&path.as_str());
                assert!(is_page || file(&path).is_some(), "{path}");
            }
        }
        for (path, _, text) in FILES.iter().filter(|(_, of, _)| *of == kind::JS) {
            for imported in text.split("from \"./").skip(1) {
                let path = format!("/{}", imported.split('"').next().expect("an end"));
                assert!(file(&path).is_some(), "{path}");
            }
            for markup in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
                assert!(!text.contains(markup), "{path}: names would become {markup}");
            }
        }
    }
}
