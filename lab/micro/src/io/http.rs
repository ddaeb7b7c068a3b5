//! `http`: a microprocess for each connection of HTTP/1.1, whose requests `httparse` parses.

use kumihimo::net::TcpStream;
use kumihimo_bench_http::answer;
use kumihimo_bench_kit::Request;

use super::echo::serve_each;

pub fn serve(request: &Request) {
    serve_each(request, |stream: TcpStream| {
        stream.set_nodelay(true).expect("nodelay");
        // A client that goes away ends its connection.
        let _ = answer(stream);
    });
}
