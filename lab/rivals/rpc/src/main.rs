//! Calls between two processes through existing libraries. `rival-rpc rpc|remote transport=T
//! side=server|client place=DIR ...`. `kumihimo_bench_kit::rpc` defines the calls, checks and
//! timing.

mod dbus;
mod futex;
mod futures;
mod grpc;
mod iceoryx;
mod multiplexed;
mod pipe;
mod streams;
mod tarpc;
mod tcp;
mod unix;

use kumihimo_bench_kit::rpc::Plan;
use kumihimo_bench_kit::{Request, raise_descriptors};

fn main() {
    if let Err(why) = run() {
        // An unavailable server prints this in place of its ready line. The starting process reads
        // no further.
        if let Some(why) = why.strip_prefix("refused: ") {
            println!("refused: {why}");
        }
        eprintln!("rival-rpc: {why}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let request = Request::parse(std::env::args().skip(1)).map_err(|e| e.to_string())?;
    raise_descriptors();
    let plan = Plan::of(&request)?;
    match request.bench.as_str() {
        "rpc" => {}
        "remote" => return remote(&request, &plan),
        other => return Err(format!("{other}: unknown benchmark")),
    }
    match request.get("transport") {
        Some("pipe") => pipe::run(&plan),
        Some("unix-socket") => unix::run(&plan),
        Some("unix-mux") => multiplexed::run(&plan, multiplexed::Callers::Threads),
        Some("unix-mux-states") => multiplexed::run(&plan, multiplexed::Callers::States),
        Some("futex") => futex::run(&plan),
        Some("grpc-uds") => grpc::run(&plan),
        Some("tarpc") => tarpc::run(&plan),
        Some("iceoryx2") => iceoryx::run(&plan),
        Some("dbus") => dbus::run(&plan),
        other => Err(format!("transport={}: unknown transport", other.unwrap_or_default())),
    }
}

/// Calls from machine to machine. The server writes where it listens to the file `address` of the
/// place; the client gets where it connects in `to`.
fn remote(request: &Request, plan: &Plan) -> Result<(), String> {
    let to = request.get("to").unwrap_or_default();
    match request.get("transport") {
        Some("tcp") => tcp::run(plan, to),
        Some("tonic") => grpc::run_by_tls(plan, to),
        Some("tarpc") => tarpc::run_by_tcp(plan, to),
        other => Err(format!("transport={}: unknown transport", other.unwrap_or_default())),
    }
}

/// Writes where a server of `remote` listens.
pub fn announce(plan: &Plan, at: std::io::Result<std::net::SocketAddr>) -> Result<(), String> {
    let at = at.map_err(while_("bind"))?;
    std::fs::write(plan.place.join("address"), at.to_string()).map_err(while_("the address"))?;
    println!("ready");
    Ok(())
}

/// For `map_err`: prefixes an error with the operation that failed.
pub fn while_<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String + '_ {
    move |e| format!("{what}: {e}")
}
