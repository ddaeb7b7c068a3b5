//! The attributes in a microprocess's record: reading, changing, inheriting.

use crate::microprocess::attributes::{Attributes, NAME_OF_START, USUAL, new_version, usual};
use crate::microprocess::record::Mp;

impl Mp {
    /// Returns the values of its attributes.
    pub(crate) fn attributes(&self) -> Attributes {
        match self.attributes_version.get() {
            USUAL => usual(),
            _ => self.own_attributes.values.get(),
        }
    }

    /// Changes its attributes. The caller applies them to the kernel thread.
    pub(crate) fn set_attributes(&self, values: Attributes) {
        self.own_attributes.values.set(values);
        let version = if values == usual() { USUAL } else { new_version() };
        self.attributes_version.set(version);
    }

    /// Gives it the usual attributes, where it goes next.
    pub(crate) fn reset_attributes(&self) {
        self.attributes_version.set(USUAL);
    }

    /// Begins a new life with the attributes of a child of `parent`, a microprocess.
    #[inline]
    pub(crate) fn inherit_attributes(&self, parent: &Mp) {
        let version = parent.attributes_version.get();
        self.attributes_version.set(version);
        if version != USUAL {
            self.inherit_changed(parent.attributes());
        }
    }

    /// As [`inherit_attributes`](Self::inherit_attributes), for a parent outside of the runtime.
    /// `None`: the usual ones.
    pub(crate) fn inherit_foreign_attributes(&self, parent: Option<Attributes>) {
        self.attributes_version.set(USUAL);
        if let Some(parent) = parent {
            self.set_attributes(parent);
        }
    }

    #[cold]
    fn inherit_changed(&self, of_parent: Attributes) {
        let inherited = of_parent.inherited();
        if inherited == of_parent {
            // The parent's version, so that a switch between the two makes no system call.
            self.own_attributes.values.set(inherited);
        } else {
            self.set_attributes(inherited);
        }
    }
}

/// The longest name of a kernel thread, without its NUL (`TASK_COMM_LEN`).
const NAME: usize = 15;

impl Mp {
    /// Returns its name as that of a thread, cut to 15 bytes, in `out`, and its length. The rest of
    /// `out` is zero.
    pub(crate) fn thread_name(&self, out: &mut [u8; NAME + 1]) -> usize {
        let length = self.label(&mut out[..NAME]);
        if length == 0
            && let Some(name) = NAME_OF_START.get()
        {
            *out = *name;
            return name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        }
        length
    }

    /// Returns its name as that of a thread, with zeros after it.
    pub(crate) fn os_name(&self) -> [u8; NAME + 1] {
        let mut name = [0; NAME + 1];
        self.thread_name(&mut name);
        name
    }

    /// Names it, for reports and [`thread_name`](Self::thread_name).
    pub(crate) fn set_thread_name(&self, name: &[u8]) {
        self.set_label_bytes(name);
    }
}
