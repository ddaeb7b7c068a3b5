//! Benchmarks on the coroutines of `may`, with `--vps` workers.

mod fork;
mod serve;
mod talk;
mod wait;

use kumihimo_bench_kit::Request;
use may::go;

fn main() {
    let request = match Request::parse(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(e) => {
            eprintln!("rival-may: {e}");
            std::process::exit(2);
        }
    };
    may::config().set_workers(request.vps);
    let bench: fn(&Request) = match request.bench.as_str() {
        "yield" => talk::switch,
        "null-fork" => fork::null_fork,
        "message" => talk::message,
        "sieve" => talk::sieve,
        "skynet" => fork::skynet,
        "mutex" => talk::mutex,
        "parked" => wait::parked,
        "echo" => serve::echo,
        "http" => serve::http,
        other => {
            eprintln!("rival-may: {other}: unknown benchmark");
            std::process::exit(2);
        }
    };
    // The caller is a coroutine, too, as with every other contender.
    if go!(move || bench(&request)).join().is_err() {
        std::process::exit(1);
    }
}
