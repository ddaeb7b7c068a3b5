//! Output of the chapters: standard output, plain unless it is a terminal.
//!
//! - `text`: headings, paragraphs, tables, numbers with units.
//! - `drawn`: priorities over time, as rows of characters.
//! - `watch`: progress of a part that takes seconds.
//!
//! Chapters pass values, and the functions print lines. This module uses no chapter.

pub mod drawn;
pub mod text;
pub mod watch;
