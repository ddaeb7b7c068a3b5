//! Shows a board: `board PATH`. Who is there, who holds which core, who waits, who was overridden
//! and why.

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
