//! `http` on axum and Tokio's multi-thread scheduler, with `--vps` workers. Prints its port, and
//! ends with its standard input.

use axum::Router;
use axum::http::Uri;
use axum::serve::ListenerExt;
use kumihimo_bench_kit::Request;
use tokio::net::TcpListener;

fn main() {
    let request = match Request::parse(std::env::args().skip(1)) {
        Ok(request) if request.bench == "http" => request,
        Ok(request) => fail(&format!("{}: unknown benchmark", request.bench)),
        Err(e) => fail(&e.to_string()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(request.vps)
        .enable_all()
        .build()
        .expect("runtime");
    runtime.spawn(serve());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("stdin");
}

async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    println!("listening {}", listener.local_addr().expect("bound").port());
    let router = Router::new().fallback(async |uri: Uri| uri.path().to_owned());
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("nodelay"));
    axum::serve(listener, router).await.expect("serves for ever");
}

fn fail(why: &str) -> ! {
    eprintln!("rival-axum: {why}");
    std::process::exit(2);
}
