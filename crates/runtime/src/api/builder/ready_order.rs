//! The order in which microprocesses with ready descriptors run.

use super::Builder;
use crate::config::ReadyOrder;

impl Builder {
    /// Sets the order in which microprocesses of one level run whose descriptors became ready.
    /// Priorities precede it. Default: [`ReadyOrder::Arrival`]. `KUMI_LAB=ready=recent` or
    /// `arrival` applies if the program does not call this.
    ///
    /// With [`Recent`](ReadyOrder::Recent) a server with thousands of busy connections answers more
    /// requests, at the price of the slowest ones. Calls that are always batched
    /// ([`Builder::batch`]) keep the order of arrival.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{ReadyOrder, Runtime};
    /// use kumihimo::{net::UnixStream, thread};
    /// use std::io::{Read, Write};
    ///
    /// let runtime = Runtime::builder().ready_order(ReadyOrder::Recent).build()?;
    /// let text = runtime.run(|| {
    ///     let (mut near, mut far) = UnixStream::pair()?;
    ///     thread::spawn(move || near.write_all(b"hot").unwrap());
    ///     let mut text = String::new();
    ///     far.read_to_string(&mut text).map(|_| text)
    /// })?;
    /// assert_eq!(text, "hot");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn ready_order(mut self, order: ReadyOrder) -> Builder {
        self.ready_order = Some(order);
        self
    }
}
