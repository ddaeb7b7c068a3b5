//! Kumihimo: runtime.
