//! One that runs on without entering the runtime is preempted, and notices nothing of it.

mod bad_input;
mod fire;
mod loops;
