"""An HTTP server with a thread per connection: `http_server.py PORT`."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = b"hello\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *words):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 4096
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
