//! What is written or drawn for readers: the reference of the API and its examples, the book and
//! its figures, the picture of `kumi top`.

pub mod book_figures;
pub mod doc_examples;
pub mod docs;
pub mod picture;
