//! One that runs on without entering the runtime is preempted, and notices nothing of it.

mod fire;
mod loops;
