//! Every body on plain std threads: sockets of Kumihimo work there too.

mod bodies;

macro_rules! tests {
    ($($module:ident: $($body:ident),*;)*) => {
        $($(#[test] fn $body() { bodies::$module::$body(bodies::STD) })*)*
    };
}

bodies!(tests);
