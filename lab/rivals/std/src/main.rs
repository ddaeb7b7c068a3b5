//! Every benchmark on kernel threads: `std::thread`, `std::sync`, `std::net`.

mod echo;
mod files;
mod fork;
mod preempt;
mod priority;
mod stall;
mod talk;
mod unwrapped;
mod wait;

use kumihimo_bench_kit::Request;

fn main() {
    let request = match Request::parse(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(e) => {
            eprintln!("rival-std: {e}");
            std::process::exit(2);
        }
    };
    match request.bench.as_str() {
        "yield" => talk::switch(&request),
        "null-fork" => fork::null_fork(&request),
        "message" => talk::message(),
        "sieve" => talk::sieve(&request),
        "parked" => wait::parked(&request),
        "mutex" => talk::mutex(&request),
        "timer" => wait::timer(&request),
        "latency" => wait::latency(&request),
        "echo" => echo::serve(),
        "http" => echo::serve_http(),
        "preempt" => preempt::preempt(&request),
        "files" => files::files(&request),
        "stall" => stall::stall(&request),
        "unwrapped" => {
            if let Err(why) = unwrapped::unwrapped(&request) {
                eprintln!("rival-std: {why}");
                std::process::exit(1);
            }
        }
        "priority" => {
            if let Err(why) = priority::priority(&request) {
                // The starting process waits for a line, and reads the refusal instead.
                println!("{why}");
                eprintln!("rival-std: {why}");
                std::process::exit(1);
            }
        }
        other => {
            eprintln!("rival-std: {other}: unknown benchmark");
            std::process::exit(2);
        }
    }
}
