//! A test for each organisation.

/// `organisations!(body)`: five tests, one of each name, that call `body(name, organisation)`.
macro_rules! organisations {
    ($body:path) => {
        crate::organisations::organisations!(@ $body, sequential Sequential, user_threads UserThreads, processes Processes,
            kernel_threads KernelThreads, microprocesses Microprocesses);
    };
    (@ $body:path, $($name:ident $organisation:ident),*) => {
        $(#[test]
        fn $name() {
            let name = concat!(module_path!(), "::", stringify!($name));
            $body(name, kumihimo_conformance::Organisation::$organisation);
        })*
    };
}
pub(crate) use organisations;
