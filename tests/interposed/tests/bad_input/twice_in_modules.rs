//! Does not compile: the macro is used in two modules.
kumihimo::interpose!();

mod other {
    kumihimo::interpose!();
}

fn main() {}
