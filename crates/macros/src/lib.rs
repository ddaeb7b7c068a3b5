//! The attribute [`main`] of the crate `kumihimo`.
#![forbid(unsafe_code)]

use proc_macro::{TokenStream, TokenTree};

/// Runs `main` as a microprocess, in a runtime with the default settings.
///
/// The program ends with `main`, as every program of std does, and its result becomes the exit code
/// in the same way. `KUMI_VPS` and the other environment variables apply.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
///
/// #[kumihimo::main]
/// fn main() -> Result<(), std::num::ParseIntError> {
///     let half = thread::spawn(|| "42".parse::<u32>().map(|n| n / 2));
///     assert_eq!(half.join().expect("no panic")?, 21);
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        return error("#[kumihimo::main] takes no arguments: the environment has the settings");
    }
    let words: Vec<String> = item
        .clone()
        .into_iter()
        .take_while(|token| {
            !matches!(token, TokenTree::Group(group)
            if group.delimiter() == proc_macro::Delimiter::Brace)
        })
        .map(|token| token.to_string())
        .collect();
    let has = |word: &str| words.iter().any(|own| own == word);
    if has("async") {
        return error(
            "#[kumihimo::main] is for a plain function: `future::block_on` runs a future",
        );
    }
    if !words.windows(3).any(|three| three[0] == "fn" && three[1] == "main" && three[2] == "()") {
        return error("#[kumihimo::main] is for `fn main()` without parameters");
    }
    // The function stays as it is, inside of the one that the program begins with.
    let mut body = item;
    body.extend(parsed("::kumihimo::runtime::run_main(main)"));
    let mut whole = parsed("fn main() -> ::std::process::ExitCode");
    whole.extend([TokenTree::Group(proc_macro::Group::new(proc_macro::Delimiter::Brace, body))]);
    whole
}

fn parsed(text: &str) -> TokenStream {
    text.parse().expect("Rust")
}

fn error(text: &str) -> TokenStream {
    parsed(&format!("compile_error!({text:?});"))
}
