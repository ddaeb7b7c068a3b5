//! Does not compile: the macro is used twice in one module.
kumihimo::interpose!();
kumihimo::interpose!();

fn main() {}
