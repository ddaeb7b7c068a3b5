//! Prints a board: `board PATH`. Its address spaces, the holder of each core, the waiters, and the
//! overridden ones with the reason.

use std::path::PathBuf;

use kumihimo_arbiter::view::View;

fn main() {
    let path = PathBuf::from(std::env::args().nth(1).expect("board PATH"));
    let view = View::open(&path).expect("a board");
    for core in view.cores() {
        println!("{core:?}");
    }
    for space in view.spaces() {
        println!("{space:?}");
    }
    println!("overridden: {:?}", view.overridden());
}
