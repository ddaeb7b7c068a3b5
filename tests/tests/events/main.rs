//! The conformance suite for event sources: no block of one microprocess stalls another, in code
//! that knows nothing of Kumihimo, and the call that was interrupted by nobody's leave returns what
//! it returns on a kernel thread.
//!
//! Every case runs once for each source in `KUMI_TEST_EVENTS` (names with commas between them; see
//! [`case::sources`]), in a process of its own with `KUMI_EVENTS` set to that source. `--nocapture`
//! shows the turns that the other microprocesses had. `KUMI_TEST_SCHEDULER=minimal` runs the cases
//! (not `many` and `random`) on another user scheduler: see [`package`].

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
