//! `kumi doctor`: what this machine offers, and what the runtime makes of it.

/// Prints one line for each thing found.
pub fn run() -> Result<(), String> {
    for (name, value) in crate::bench::machine::description() {
        println!("{name:<24} {value}");
    }
    Ok(())
}
