#[cfg(not(loom))]
mod calls;
#[cfg(not(loom))]
mod hostile;
#[cfg(loom)]
mod loom;
