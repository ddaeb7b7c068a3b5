//! Conformance suite for event sources: a block of one microprocess never stalls another, even in
//! code that does not use Kumihimo. The blocked call returns the same result as on a kernel thread.
//!
//! Every case runs once for each source in `KUMI_TEST_EVENTS` (names separated by commas; see
//! [`case::sources`]), in a child process with `KUMI_EVENTS` set to that source. `--nocapture`
//! shows the turns of the other microprocesses. `KUMI_TEST_SCHEDULER=minimal` runs the cases
//! (except `many` and `random`) on another user scheduler: see [`package`].

mod calls;
mod case;
mod children;
mod faults;
mod fuse;
mod many;
mod names;
mod package;
mod random;
mod timed;
