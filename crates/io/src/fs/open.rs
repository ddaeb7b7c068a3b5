//! How a file is opened.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{File, call};

/// How a file is opened, as [`std::fs::OpenOptions`]. [`std::os::unix::fs::OpenOptionsExt`] is
/// implemented for it.
#[derive(Clone, Debug)]
pub struct OpenOptions(std::fs::OpenOptions);

impl OpenOptions {
    /// Nothing is allowed yet.
    #[allow(clippy::new_without_default)]
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions(std::fs::OpenOptions::new())
    }

    /// Whether it may be read.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read(read);
        self
    }

    /// Whether it may be written.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write(write);
        self
    }

    /// Whether each write goes to the end, wherever that is by then.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append(append);
        self
    }

    /// Whether it is emptied.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate(truncate);
        self
    }

    /// Whether it is made if it is not there.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create(create);
        self
    }

    /// Whether it must not be there yet.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new(create_new);
        self
    }

    /// Opens the file. A FIFO is waited for until its other end is opened.
    ///
    /// # Errors
    /// As open(2); `InvalidInput` for options that contradict one another.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        call(|| self.0.open(path)).map(File::from)
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    fn from(options: std::fs::OpenOptions) -> OpenOptions {
        OpenOptions(options)
    }
}
