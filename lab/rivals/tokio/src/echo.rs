//! `echo` and `http`. Prints its port, and ends with its standard input.

use kumihimo_bench_http::Requests;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub async fn serve() {
    serve_each(echo).await
}

pub async fn serve_http() {
    serve_each(http).await
}

async fn serve_each<F: Future<Output = ()> + Send + 'static>(body: fn(TcpStream) -> F) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("bound").port();
    println!("listening {port}");
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accept");
            tokio::spawn(body(stream));
        }
    });
    let waiting = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    waiting.await.expect("no panic").expect("stdin");
}

async fn echo(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("nodelay");
    let mut buffer = [0; 1024];
    while let Ok(n) = stream.read(&mut buffer).await {
        if n == 0 || stream.write_all(&buffer[..n]).await.is_err() {
            break;
        }
    }
}

async fn http(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("nodelay");
    let mut requests = Requests::default();
    while let Ok(n) = stream.read(requests.room()).await {
        let Ok((replies, _)) = requests.replies(n) else { break };
        if n == 0 || stream.write_all(&replies).await.is_err() {
            break;
        }
    }
}
