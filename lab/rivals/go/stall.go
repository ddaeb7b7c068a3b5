package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The same constants as in lab/stall.
const (
	stallersInAll = 8
	stallRate     = 2_000
	shortUs       = 1_500
	longUs        = 200_000
	longEvery     = 256
	pause         = 2_000 * time.Microsecond
	connections   = 4
	workRounds    = 30_000
	chunkRounds   = 1_000
	busy          = 0.75
	pagesEach     = 256
	page          = 4_096
	requestBytes  = 16
)

// CLOCK_MONOTONIC, in nanoseconds. time.Now() contains this time, but has no method that returns it.
var clockBase = func() struct {
	at time.Time
	ns uint64
} {
	var t syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	assert(errno == 0, "clock_gettime")
	return struct {
		at time.Time
		ns uint64
	}{time.Now(), uint64(t.Nano())}
}()

func nowNs() uint64 { return clockBase.ns + uint64(time.Since(clockBase.at)) }

// Plain system calls, as in a C library. os.File would add a FIFO to Go's poller, and no call would block.
type staller struct {
	kind        string
	ask, answer int
	locks       [2]int
	file        int
	quick, slow pages
	turn        uint64
	stalls      uint64
	rounds      uint64
	long        uint64
	blocked     time.Duration
}

type pages struct {
	fd, from, next int
	at             []byte
}

func open(path string, flags int) int {
	fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, 0)
	if err != nil {
		fail("%s: %v", path, err)
	}
	return fd
}

func mapPages(path string, from int) pages {
	fd := open(path, syscall.O_RDONLY)
	at, err := syscall.Mmap(fd, int64(from)*page, pagesEach*page, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		fail("mmap %s: %v", path, err)
	}
	assert(syscall.Madvise(at, syscall.MADV_RANDOM) == nil, "madvise")
	return pages{fd: fd, from: from, at: at}
}

func (p *pages) dropNext() {
	p.next = (p.next + 1) % pagesEach
	assert(syscall.Madvise(p.at[p.next*page:(p.next+1)*page], syscall.MADV_DONTNEED) == nil, "madvise")
	const dontNeed = 4
	offset := uintptr((p.from + p.next) * page)
	_, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, uintptr(p.fd), offset, page, dontNeed, 0, 0)
	assert(errno == 0, "posix_fadvise")
}

var touched atomic.Uint32

// Always 0, but not a constant for the compiler.
var touchedNever uint64

func (p *pages) touch() { touched.Store(uint32(p.at[p.next*page])) }

func openStaller(kind, dir string, number int) *staller {
	named := func(prefix string) string { return filepath.Join(dir, prefix+strconv.Itoa(number)) }
	s := &staller{kind: kind, turn: uint64(number) * (longEvery / stallersInAll)}
	switch kind {
	case "read", "blocking":
		s.ask, s.answer = open(named("ask"), syscall.O_WRONLY), open(named("answer"), syscall.O_RDONLY)
	case "flock":
		s.ask = open(named("ask"), syscall.O_WRONLY)
		s.locks = [2]int{open(named("lock")+"a", syscall.O_RDONLY), open(named("lock")+"b", syscall.O_RDONLY)}
	case "fuse":
		s.file = open(named("slow/read"), syscall.O_RDONLY)
	case "loop":
	case "fault":
		s.quick, s.slow = mapPages(filepath.Join(dir, "pages"), number*pagesEach), mapPages(named("slow/page"), 0)
	default:
		fail("%s: no such kind of stall", kind)
	}
	return s
}

// Repeats a call that a preemption signal of Go interrupted, as the standard library does.
func again(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

// Set by a timer, which runs because Go's scheduler preempts loops.
var over atomic.Bool

// Computes without calls until `over` is set.
func (s *staller) endless() {
	since, right, wrong := time.Now(), spin(1, chunkRounds), 0
	for !over.Load() {
		if spin(1+touchedNever, chunkRounds) != right {
			wrong++
		}
		s.rounds += chunkRounds
	}
	assert(wrong == 0, "chunks of the loop")
	if s.rounds > 0 {
		s.stalls, s.long = 1, 1
	}
	s.blocked = time.Since(since)
}

func (s *staller) once() {
	if s.kind == "loop" {
		s.endless()
		return
	}
	s.turn++
	us := uint32(shortUs)
	long := s.turn%longEvery == 0
	if long {
		us = longUs
		s.long++
	}
	pages := &s.quick
	if long {
		pages = &s.slow
	}
	which := s.locks[s.turn%2]
	switch s.kind {
	case "read", "blocking", "flock":
		n, err := syscall.Write(s.ask, binary.LittleEndian.AppendUint32(nil, us))
		assert(n == 4 && err == nil, "the other side")
	case "fault":
		pages.dropNext()
	}
	since := time.Now()
	var one [1]byte
	n := 1
	var err error
	switch s.kind {
	case "read", "blocking":
		err = again(func() (e error) { n, e = syscall.Read(s.answer, one[:]); return })
	case "flock":
		err = again(func() error { return syscall.Flock(which, syscall.LOCK_EX) })
	case "fuse":
		err = again(func() (e error) { n, e = syscall.Pread(s.file, one[:], int64(us)*page); return })
	case "fault":
		pages.touch()
	}
	assert(n == 1 && err == nil, "the other side")
	s.stalls++
	s.blocked += time.Since(since)
	if s.kind == "flock" {
		assert(syscall.Flock(which, syscall.LOCK_UN) == nil, "unlock")
	}
}

func (s *staller) until(end time.Time) {
	for again := true; again; again = time.Now().Before(end) {
		s.once()
		if s.kind == "fault" {
			time.Sleep(pause)
		} else {
			runtime.Gosched()
		}
	}
}

func stall(req request) {
	dir, kind := req.keys["dir"], req.keys["stall"]
	count, warm := req.number("count", 0), req.number("warm", 0)
	length := time.Duration(req.number("ms", 1_000)) * time.Millisecond
	assert(dir != "" && count > warm, "stall needs dir= and count=")
	var stallers []*staller
	for i := 0; kind != "none" && i < stallersInAll; i++ {
		stallers = append(stallers, openStaller(kind, dir, i))
	}
	took := make([]time.Duration, count)
	for i := range took {
		took[i] = -1
	}
	var before, after syscall.Rusage
	assert(syscall.Getrusage(syscall.RUSAGE_SELF, &before) == nil, "getrusage")
	var streams []net.Conn
	for range connections {
		stream, err := net.Dial("unix", filepath.Join(dir, "load"))
		if err != nil {
			fail("the other side: %v", err)
		}
		streams = append(streams, stream)
	}
	end := time.Now().Add(length)
	time.AfterFunc(length, func() { over.Store(true) })
	var all sync.WaitGroup
	for _, stream := range streams {
		all.Add(1)
		go take(stream, took, &all)
	}
	for _, s := range stallers {
		all.Add(1)
		go func() {
			defer all.Done()
			s.until(end)
		}()
	}
	all.Wait()
	assert(syscall.Getrusage(syscall.RUSAGE_SELF, &after) == nil, "getrusage")
	stalls, long, rounds, blocked := uint64(0), uint64(0), uint64(0), time.Duration(0)
	for _, s := range stallers {
		stalls, long, rounds, blocked = stalls+s.stalls, long+s.long, rounds+s.rounds, blocked+s.blocked
	}
	faults := after.Majflt - before.Majflt
	if kind == "fault" {
		stalls = min(stalls, uint64(faults))
	}
	rate := float64(stalls) / length.Seconds()
	if kind == "loop" {
		rate = float64(stalls)
	}
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	reached := 0
	switch {
	case kind == "loop":
		if stalls == stallersInAll && float64(cpu) >= busy*float64(req.vps)*float64(length) {
			reached = 1
		}
	case kind == "none" || rate >= stallRate && long > 0:
		reached = 1
	}
	keys := fmt.Sprintf("stall=%s load:=%s stalls:=%.0f long:=%d reached:=%d blocked_s:=%.2f majflt:=%d switches:=%d cpu_s:=%.2f",
		kind, req.keys["rate"], rate, long, reached, blocked.Seconds(), faults, after.Nvcsw-before.Nvcsw, float64(cpu)/1e9)
	if kind == "loop" {
		keys += fmt.Sprintf(" priority=equal rounds:=%d", rounds)
	}
	for _, one := range took {
		assert(one >= 0, "requests that came to their end")
	}
	took = took[warm:]
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	sample("p50", percentile(took, 0.5), "us", keys)
	sample("p99", percentile(took, 0.99), "us", keys)
	sample("p999", percentile(took, 0.999), "us", keys)
}

// Starts a goroutine for each request. `all` counts connections and requests.
func take(stream net.Conn, took []time.Duration, all *sync.WaitGroup) {
	defer all.Done()
	buffer := make([]byte, 64*requestBytes)
	have := 0
	for {
		n, err := stream.Read(buffer[have:])
		have += n
		at := 0
		for ; at+requestBytes <= have; at += requestBytes {
			intended, number := binary.LittleEndian.Uint64(buffer[at:]), binary.LittleEndian.Uint64(buffer[at+8:])
			all.Add(1)
			go func() {
				defer all.Done()
				atomic.StoreUint64(&sink[number%contenders], spin(number+1, workRounds))
				took[number] = time.Duration(max(nowNs(), intended) - intended)
			}()
		}
		copy(buffer, buffer[at:have])
		have -= at
		if err == io.EOF {
			assert(have == 0, "half a request")
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "rival-go: the other side:", err)
			os.Exit(2)
		}
	}
}
