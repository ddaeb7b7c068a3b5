//! The page that chapters write on: standard output, plain unless it is a terminal.
//!
//! - `text`: headings, paragraphs, tables, numbers with units.
//! - `drawn`: which priority ran when, as rows of characters.
//! - `watch`: progress of a part that takes seconds.
//!
//! Values flow in from chapters and lines go out. This room uses no chapter.

pub mod drawn;
pub mod text;
pub mod watch;
