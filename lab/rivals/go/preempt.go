package main

import (
	"sort"
	"sync"
	"time"
)

// The workload is the same as in lab/micro/src/scheduling/preempt.rs.
const hashedWords = (256 << 10) / 8

func hashedData(seed uint64) []uint64 {
	data := make([]uint64, hashedWords)
	for i := range data {
		seed = seed*6_364_136_223_846_793_005 + 1_442_695_040_888_963_407
		data[i] = seed
	}
	return data
}

func hashOf(data []uint64, passes int) uint64 {
	hash := uint64(0xcbf2_9ce4_8422_2325)
	for pass := range passes {
		hash ^= uint64(pass)
		for _, word := range data {
			hash = (hash ^ word) * 0x0100_0000_01b3
		}
	}
	return hash
}

// Two computing goroutines share the only processor. The reference is the same computation in sequence.
func preempt(req request) {
	pair := [2][]uint64{hashedData(1), hashedData(2)}
	start := time.Now()
	assert(hashOf(pair[0], 200) != 0, "a hash")
	work := time.Duration(req.number("ms", 150)) * time.Millisecond
	passes := int(200*float64(work)/float64(time.Since(start))) + 1
	right := [2]uint64{hashOf(pair[0], passes), hashOf(pair[1], passes)}
	alone := func() time.Duration {
		start := time.Now()
		for i, data := range pair {
			assert(hashOf(data, passes) == right[i], "the hash alone")
		}
		return time.Since(start)
	}
	together := func() time.Duration {
		start := time.Now()
		var both sync.WaitGroup
		for i, data := range pair {
			both.Add(1)
			go func() {
				defer both.Done()
				assert(hashOf(data, passes) == right[i], "the hash of one that was preempted")
			}()
		}
		both.Wait()
		return time.Since(start)
	}
	var ratios []float64
	before := alone()
	for range req.number("pairs", 5) {
		took := together()
		after := alone()
		ratios = append(ratios, 2*float64(took)/float64(before+after))
		before = after
	}
	sort.Float64s(ratios)
	sample("cost", ratios[len(ratios)/2], "ratio", "quantum=10ms")
}
