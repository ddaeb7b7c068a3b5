//! Calls between two processes.

mod bad_directory;
mod bad_input;
mod calls;
mod cores;
mod dying;
mod hostile;
mod pair;
mod parts;
mod quota_limits;
mod quotas;
mod seen;
mod streams;
mod stress;
