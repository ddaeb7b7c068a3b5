//! Kumihimo: sync.
