package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type usage struct{ rss, peakRSS, kernel uint64 }

// The same sources as for the Rust contenders: /proc/self/status, and the machine's unreclaimable kernel memory.
func memory() usage {
	status, err := os.ReadFile("/proc/self/status")
	assert(err == nil, "/proc/self/status")
	meminfo, err := os.ReadFile("/proc/meminfo")
	assert(err == nil, "/proc/meminfo")
	kernel := uint64(0)
	for _, name := range []string{"SUnreclaim:", "KernelStack:", "PageTables:"} {
		kernel += kilobytes(string(meminfo), name)
	}
	return usage{kilobytes(string(status), "VmRSS:"), kilobytes(string(status), "VmHWM:"), kernel}
}

func kilobytes(text, name string) uint64 {
	for _, line := range strings.Split(text, "\n") {
		if rest, found := strings.CutPrefix(line, name); found {
			kb, _ := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			return kb * 1024
		}
	}
	return 0
}

func parked(req request) {
	count := req.number("count", crowd)
	used := req.keys["part"] == "parked_used"
	gate := make(chan struct{})
	var standing, all sync.WaitGroup
	standing.Add(count)
	all.Add(count)
	before := memory()
	for i := range count {
		go func() {
			kept := new(int)
			*kept = i
			if used {
				many := make([]*int, 200)
				for n := range many {
					many[n] = new(int)
				}
				runtime.KeepAlive(many)
			}
			standing.Done()
			<-gate
			assert(*kept == i, "what was kept")
			all.Done()
		}()
	}
	standing.Wait()
	if used {
		// In Go, memory is freed by garbage collection.
		runtime.GC()
	}
	now := memory()
	each := func(now, before uint64) float64 { return max(0, float64(now)-float64(before)) / float64(count) }
	keys := fmt.Sprintf("count=%d alive_max:=%d", count, count)
	if used {
		sample("parked_used", each(now.rss, before.rss), "bytes", keys)
	} else {
		sample("rss", each(now.rss, before.rss), "bytes", keys)
		sample("kernel", each(now.kernel, before.kernel), "bytes", keys)
	}
	close(gate)
	all.Wait()
}

func cpuTime() time.Duration {
	var ru syscall.Rusage
	assert(syscall.Getrusage(syscall.RUSAGE_SELF, &ru) == nil, "getrusage")
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

type dice uint64

func newDice(seed int) dice { return dice(spin(uint64(seed)*0x9E3779B97F4A7C15|1, 4)) }

func (d *dice) below(bound uint64) uint64 {
	*d = dice(spin(uint64(*d), 1))
	return uint64(*d>>11) % bound
}

// The quantile q of the delays, in microseconds.
func percentile(sorted []time.Duration, q float64) float64 {
	at := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[at].Nanoseconds()) / 1e3
}

// Each goroutine checks once a second whether all are created, and then sleeps three times.
func timer(req request) {
	const sleeps = 3
	count := req.number("count", crowd)
	late := make([]time.Duration, count*sleeps)
	var begin atomic.Pointer[time.Time]
	var all sync.WaitGroup
	all.Add(count)
	for i := range count {
		go func() {
			d := newDice(i)
			for begin.Load() == nil {
				time.Sleep(time.Second)
			}
			deadline := *begin.Load()
			for s := range sleeps {
				deadline = deadline.Add(time.Duration(100_000+d.below(500_000)) * time.Microsecond)
				time.Sleep(time.Until(deadline))
				late[i*sleeps+s] = time.Since(deadline)
			}
			all.Done()
		}()
	}
	at := time.Now().Add(1_200 * time.Millisecond)
	begin.Store(&at)
	time.Sleep(time.Until(at))
	before := cpuTime()
	all.Wait()
	cost := float64(cpuTime()-before) / float64(count*sleeps)
	sort.Slice(late, func(a, b int) bool { return late[a] < late[b] })
	keys := fmt.Sprintf("sleepers:=%d", count)
	sample("lateness_p50", percentile(late, 0.5), "us", keys)
	sample("lateness_p99", percentile(late, 0.99), "us", keys)
	sample("cost", cost, "ns", keys)
}

// One goroutine sleeps for a millisecond at a time, and many others compute and yield.
func latency(req request) {
	const busy = 1_000
	wakes := req.number("wakes", 300)
	var stop atomic.Bool
	var all sync.WaitGroup
	for i := range busy {
		all.Add(1)
		go func() {
			defer all.Done()
			for !stop.Load() {
				atomic.StoreUint64(&sink[i%contenders], spin(uint64(i+1), busyRounds))
				runtime.Gosched()
			}
		}()
	}
	late := make([]time.Duration, wakes)
	for i := range late {
		deadline := time.Now().Add(time.Millisecond)
		time.Sleep(time.Millisecond)
		late[i] = time.Since(deadline)
	}
	stop.Store(true)
	all.Wait()
	sort.Slice(late, func(a, b int) bool { return late[a] < late[b] })
	sample("p50", percentile(late, 0.5), "us", "priority=equal")
	sample("p99", percentile(late, 0.99), "us", "priority=equal")
	sample("p999", percentile(late, 0.999), "us", "priority=equal")
}
