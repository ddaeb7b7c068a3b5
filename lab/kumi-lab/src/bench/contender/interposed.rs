//! The shared libraries of `kumi run`, beside this program.

use super::{Trouble, product};

const LIBRARIES: [&str; 2] = ["libkumihimo_preload.so", "libkumihimo_run.so"];

/// Returns whether `kumi run` finds its libraries beside this program.
pub fn is_there() -> bool {
    std::env::current_exe()
        .is_ok_and(|own| LIBRARIES.iter().all(|library| own.with_file_name(library).is_file()))
}

/// Builds the libraries from the repository, so that they are of this source. They cannot be built
/// together with this program: it enables the feature `lab`, which Cargo would enable in them, too.
///
/// # Errors
/// If they are not beside this program afterwards.
pub fn build() -> Result<(), Trouble> {
    let folder = product::build(&["kumihimo-run", "kumihimo-preload"])?;
    match is_there() {
        true => Ok(()),
        false => Err(format!("{} are not in {}", LIBRARIES.join(", "), folder.display()).into()),
    }
}
