package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

// The server of the standard library. Prints its port, and ends at the end of its standard input.
func serveHTTP(request) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail("listen: %v", err)
	}
	fmt.Println("listening", listener.Addr().(*net.TCPAddr).Port)
	go http.Serve(listener, http.HandlerFunc(func(to http.ResponseWriter, from *http.Request) {
		io.WriteString(to, from.URL.Path)
	}))
	io.Copy(io.Discard, os.Stdin)
}
