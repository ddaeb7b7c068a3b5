//! Kumihimo: arch.
