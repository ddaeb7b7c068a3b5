//! Does not compile: the macro is in a library.
kumihimo::interpose!();
