//! The examples do what they say: each is started as a user would, and talked to.

mod files;
mod futures;
mod http;
mod program;
mod proxy;
mod redis;
mod resources;
mod start;
mod tls;
