package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const crowd = 100_000

func nullFork(req request) {
	if req.wants("sequential") {
		const count = 500_000
		oneByOne(count / 10)
		start := time.Now()
		oneByOne(count)
		sample("sequential", float64(time.Since(start).Nanoseconds())/count, "ns", "")
	}
	if req.wants("bulk") {
		count := req.number("count", crowd)
		for _, metric := range []string{"bulk_cold", "bulk_warm"} {
			start := time.Now()
			bulk(count)
			each := float64(time.Since(start).Nanoseconds()) / float64(count)
			sample(metric, each, "ns", fmt.Sprintf("alive_max:=%d", count))
		}
	}
}

func oneByOne(count int) {
	done := make(chan struct{})
	body := func() { done <- struct{}{} }
	for range count {
		go body()
		<-done
	}
}

// All goroutines wait at the gate until the last one is created, so all are alive at the same time.
func bulk(count int) {
	var all sync.WaitGroup
	gate := make(chan struct{})
	all.Add(count)
	body := func() {
		<-gate
		all.Done()
	}
	for range count {
		go body()
	}
	close(gate)
	all.Wait()
}

const (
	skynetLeaves = 1_000_000
	skynetSum    = 499_999_500_000
)

var alive, aliveMax atomic.Int64

func skynet(request) {
	start := time.Now()
	result := make(chan int, 1)
	go node(result, 0, skynetLeaves)
	sum := <-result
	total := time.Since(start).Seconds()
	assert(sum == skynetSum, "skynet's sum")
	peak := memory().peakRSS
	// Counting takes time, so it has a separate pass.
	born()
	go countedNode(result, 0, skynetLeaves)
	assert(<-result == skynetSum, "skynet's sum")
	keys := fmt.Sprintf("alive_max:=%d", aliveMax.Load())
	sample("total", total, "s", keys)
	sample("peak_rss", float64(peak), "bytes", keys)
}

func node(up chan<- int, first, leaves int) {
	if leaves == 1 {
		up <- first
		return
	}
	results := make(chan int, 10)
	share := leaves / 10
	for i := range 10 {
		go node(results, first+i*share, share)
	}
	sum := 0
	for range 10 {
		sum += <-results
	}
	up <- sum
}

func born() {
	now := alive.Add(1)
	for {
		most := aliveMax.Load()
		if now <= most || aliveMax.CompareAndSwap(most, now) {
			return
		}
	}
}

func countedNode(up chan<- int, first, leaves int) {
	defer alive.Add(-1)
	if leaves == 1 {
		up <- first
		return
	}
	results := make(chan int, 10)
	share := leaves / 10
	for i := range 10 {
		born()
		go countedNode(results, first+i*share, share)
	}
	sum := 0
	for range 10 {
		sum += <-results
	}
	up <- sum
}
