//! Every body inside a microprocess, with what it starts in microprocesses of their own.

mod bodies;

use bodies::Env;
use kumihimo_runtime::thread;

const MICROPROCESSES: Env = Env {
    spawn: |f| {
        let microprocess = thread::spawn(f);
        Box::new(move || microprocess.join().expect("the other microprocess panicked"))
    },
};

fn inside(body: fn(Env), rest: Env) {
    if let Err(payload) = thread::spawn(move || body(rest)).join() {
        std::panic::resume_unwind(payload);
    }
}

macro_rules! tests {
    ($($module:ident: $($body:ident),*;)*) => {
        $($(#[test] fn $body() { inside(bodies::$module::$body, MICROPROCESSES) })*)*

        /// The body in a microprocess, what it starts on std threads.
        mod with_std_threads {
            $($(#[test] fn $body() { super::inside(super::bodies::$module::$body, super::bodies::STD) })*)*
        }
    };
}

file_bodies!(tests);
