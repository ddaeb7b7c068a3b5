package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// Prints its port, and ends at the end of its standard input.
func echo(request) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail("listen: %v", err)
	}
	fmt.Println("listening", listener.Addr().(*net.TCPAddr).Port)
	go func() {
		for {
			stream, err := listener.Accept()
			if err != nil {
				fail("accept: %v", err)
			}
			// Go sets TCP_NODELAY itself.
			go serve(stream)
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

func serve(stream net.Conn) {
	defer stream.Close()
	buffer := make([]byte, 1024)
	for {
		n, err := stream.Read(buffer)
		if n > 0 {
			if _, err := stream.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
