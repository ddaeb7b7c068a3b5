package main

import (
	"runtime"
	"sync"
	"time"
)

// Two goroutines per processor, which alternate.
func yield(req request) {
	const rounds = 1_000_000
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	ready.Add(2 * req.vps)
	for range 2 * req.vps {
		done.Add(1)
		go func() {
			defer done.Done()
			for range rounds / 10 {
				runtime.Gosched()
			}
			ready.Done()
			<-begin
			for range rounds {
				runtime.Gosched()
			}
		}()
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	sample("switch", float64(time.Since(start).Nanoseconds())/(2*rounds), "ns", "")
}

func message(request) {
	const rounds = 300_000
	ask, answer := make(chan int), make(chan int)
	go func() {
		for n := range ask {
			answer <- n + 1
		}
	}()
	exchange := func(rounds int) {
		for i := range rounds {
			ask <- i
			assert(<-answer == i+1, "reply")
		}
	}
	exchange(rounds / 10)
	start := time.Now()
	exchange(rounds)
	sample("roundtrip", float64(time.Since(start).Nanoseconds())/rounds, "ns", "")
}

type found struct{ primes, sum int }

// The paper's chain: a generator, and one filter per prime, each started by its predecessor.
func sieve(req request) {
	for _, s := range []struct {
		part   string
		limit  int
		expect found
		rounds int
	}{
		{"primes700", 700, found{125, 39_612}, 30},
		{"primes2000", 17_389, found{2_000, 16_274_627}, 1},
	} {
		if !req.wants(s.part) {
			continue
		}
		run := func() {
			first, result := make(chan int), make(chan found, 1)
			go filter(first, result)
			go func() {
				for n := 2; n <= s.limit; n++ {
					first <- n
				}
				close(first)
			}()
			assert(<-result == s.expect, s.part)
		}
		if s.rounds > 1 {
			run()
		}
		start := time.Now()
		for range s.rounds {
			run()
		}
		sample(s.part, time.Since(start).Seconds()/float64(s.rounds), "s", "")
	}
}

func filter(from <-chan int, up chan<- found) {
	prime := <-from
	var next chan int
	var result chan found
	for n := range from {
		if n%prime != 0 {
			if next == nil {
				next, result = make(chan int), make(chan found, 1)
				go filter(next, result)
			}
			next <- n
		}
	}
	all := found{1, prime}
	if next != nil {
		close(next)
		rest := <-result
		all = found{rest.primes + 1, rest.sum + prime}
	}
	up <- all
}

const (
	contenders = 64
	inside     = 10
	outside    = 40
	busyRounds = 7_500
)

func spin(x uint64, rounds int) uint64 {
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// Written, never read: prevents the compiler from removing the computation.
var sink [contenders]uint64

func mutex(req request) {
	rounds := req.number("rounds", 20_000)
	var lock sync.Mutex
	var all sync.WaitGroup
	begin := make(chan struct{})
	count, shared := 0, uint64(1)
	for seed := range contenders {
		all.Add(1)
		go func() {
			defer all.Done()
			<-begin
			own := uint64(seed + 1)
			for range rounds {
				lock.Lock()
				count++
				shared = spin(shared, inside)
				lock.Unlock()
				own = spin(own, outside)
			}
			sink[seed] = own
		}()
	}
	start := time.Now()
	close(begin)
	all.Wait()
	elapsed := time.Since(start).Seconds()
	assert(count == contenders*rounds, "sections entered")
	sample("ops", float64(count)/elapsed, "1/s", "")
}
