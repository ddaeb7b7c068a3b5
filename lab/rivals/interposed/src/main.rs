//! `unwrapped` on threads of std that are microprocesses: the source is that of the rival `std`,
//! compiled with two more lines.

kumihimo::interpose!();

#[path = "../../std/src/unwrapped.rs"]
mod unwrapped;

use std::process::ExitCode;

use kumihimo_bench_kit::Request;

#[kumihimo::main]
fn main() -> ExitCode {
    match Request::parse(std::env::args().skip(1)) {
        Ok(request) if request.bench == "unwrapped" => match unwrapped::unwrapped(&request) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(why) => eprintln!("rival-interposed: {why}"),
        },
        Ok(request) => eprintln!("rival-interposed: {}: unknown benchmark", request.bench),
        Err(e) => eprintln!("rival-interposed: {e}"),
    }
    ExitCode::FAILURE
}
