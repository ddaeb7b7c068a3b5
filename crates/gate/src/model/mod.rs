//! The crate's modules in a build for loom models.
//!
//! The lane, the calls of a client and the notifier are the real files. What they call in rooms
//! that need the runtime or the kernel has a stand-in here under the same path.

pub(crate) mod waiting;

#[cfg(test)]
mod tests {
    mod loom;
}

#[path = "../client"]
pub(crate) mod client {
    pub(crate) mod calls;
    pub(crate) mod cell_queue;
    pub(crate) mod reply_slot;
}

#[path = "../link"]
pub(crate) mod link {
    pub(crate) mod notifier;

    pub(crate) mod link_index {
        /// The flush of the real index asks each link, as the models do.
        pub(crate) fn mark_pending(_bucket: u32) {}
    }

    pub(crate) mod socket {
        use ::loom::sync::atomic::{AtomicU32, Ordering};

        /// Counts the rings that went over the socket.
        #[derive(Debug)]
        pub(crate) struct Link {
            pub(crate) rings: AtomicU32,
        }

        impl Link {
            pub(crate) fn ring(&self) {
                self.rings.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    pub(crate) mod wake_address {
        use kumihimo_arbiter::row::Row;

        #[derive(Clone, Copy, Debug)]
        pub(crate) struct PeerRow {
            pub(crate) row: Row,
            pub(crate) bit: u32,
        }
    }
}

#[path = "../options"]
pub(crate) mod options {
    mod placement;

    pub use placement::Placement;
}
