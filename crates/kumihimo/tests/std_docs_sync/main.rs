//! std's documentation examples for `std::sync`, compiled and run with only the `use` changed:
//! `std::thread` and `std::sync` have become `kumihimo::thread` and `kumihimo::sync`. Examples that
//! std shows failing to compile, or of unstable functions, are not here.
#![allow(unused)]
#![allow(clippy::all)]

mod barrier;
mod condvar;
mod lazylock;
mod mpsc;
mod mutex;
mod once;
mod oncelock;
mod rwlock;
