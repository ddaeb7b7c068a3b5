//! Kumihimo: events.
