//! Kumihimo: io.
