//! Every body on plain std threads: files and pipes of Kumihimo work there too.

mod bodies;

macro_rules! tests {
    ($($module:ident: $($body:ident),*;)*) => {
        $($(#[test] fn $body() { bodies::$module::$body(bodies::STD) })*)*
    };
}

file_bodies!(tests);
