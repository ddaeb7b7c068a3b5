//! A macro that defines a test for each organisation.

/// `organisations!(body)`: defines five tests, named after the organisations, that call `body(name,
/// organisation)`.
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
