//! `echo`. Prints its port, and ends with its standard input.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("bound").port();
    println!("listening {port}");
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accept");
            tokio::spawn(echo(stream));
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
