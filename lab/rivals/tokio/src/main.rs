//! Every benchmark on Tokio's multi-thread scheduler, with `--vps` workers.

mod echo;
mod fork;
mod kv;
mod stall;
mod talk;
mod wait;

use kumihimo_bench_kit::Request;

fn main() {
    let request = match Request::parse(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(e) => {
            eprintln!("rival-tokio: {e}");
            std::process::exit(2);
        }
    };
    if request.bench == "kv" {
        return kv::serve();
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(request.vps).enable_all().build().expect("runtime");
    // The future of `block_on` itself runs on none of the workers, and more slowly: hence `spawn`.
    let done = runtime.block_on(async { tokio::spawn(run(request)).await });
    if done.is_err() {
        std::process::exit(1);
    }
}

async fn run(request: Request) {
    match request.bench.as_str() {
        "yield" => talk::switch(&request).await,
        "null-fork" => fork::null_fork(&request).await,
        "message" => talk::message(&request).await,
        "sieve" => talk::sieve(&request).await,
        "skynet" => fork::skynet().await,
        "parked" => wait::parked(&request).await,
        "mutex" => talk::mutex(&request).await,
        "timer" => wait::timer(&request).await,
        "latency" => wait::latency(&request).await,
        "echo" => echo::serve().await,
        "http" => echo::serve_http().await,
        "stall" => stall::stall(&request).await,
        other => {
            eprintln!("rival-tokio: {other}: unknown benchmark");
            std::process::exit(2);
        }
    }
}
