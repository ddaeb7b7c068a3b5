//! Does not compile: the attribute has an argument, or another function than `main`.
#[kumihimo::main(vps = 4)]
fn main() {}

#[kumihimo::main]
async fn asynchronous() {}

#[kumihimo::main]
fn other(_: u32) {}
