// All benchmarks on goroutines, with GOMAXPROCS set by --vps.
//
// Called as `rival BENCH [--vps N] [KEY=VALUE ...]`, it prints one line per sample:
// `metric value unit [key=value ...] [key:=value ...]`.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

type request struct {
	bench string
	vps   int
	keys  map[string]string
}

func main() {
	req := parse(os.Args[1:])
	runtime.GOMAXPROCS(req.vps)
	benches := map[string]func(request){
		"yield": yield, "null-fork": nullFork, "message": message, "sieve": sieve, "skynet": skynet,
		"parked": parked, "mutex": mutex, "timer": timer, "latency": latency, "echo": echo, "http": serveHTTP,
		"stall": stall, "preempt": preempt,
	}
	run, known := benches[req.bench]
	if !known {
		fail("%s: no such benchmark on Go", req.bench)
	}
	run(req)
}

func parse(args []string) request {
	req := request{vps: 1, keys: map[string]string{}}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if strings.HasPrefix(arg, "--") {
			i++
			if i == len(args) {
				fail("%s needs a value", arg)
			}
			switch arg {
			case "--vps":
				n, err := strconv.Atoi(args[i])
				if err != nil || n < 1 {
					fail("--vps %s: not a number of at least 1", args[i])
				}
				req.vps = n
			case "--variant", "--queue":
			default:
				fail("%s: no such option", arg)
			}
		} else if key, value, found := strings.Cut(arg, "="); found {
			req.keys[key] = value
		} else {
			req.bench = arg
		}
	}
	return req
}

func (req request) number(key string, otherwise int) int {
	text, given := req.keys[key]
	if !given {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		fail("%s=%s: cannot be read", key, text)
	}
	return n
}

func (req request) wants(part string) bool {
	parts, given := req.keys["part"]
	if !given {
		return true
	}
	for _, p := range strings.Split(parts, ",") {
		if p == part {
			return true
		}
	}
	return false
}

func sample(metric string, value float64, unit string, keys string) {
	fmt.Println(metric, strconv.FormatFloat(value, 'f', -1, 64), unit, keys)
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "rival-go: "+format+"\n", args...)
	os.Exit(2)
}

func assert(right bool, what string) {
	if !right {
		fail("wrong result: %s", what)
	}
}
