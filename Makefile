# Everything that a newcomer or CI calls; each target does its own set-up. The work is in scripts/.
.PHONY: help run test test-lab lint check check-aarch64 docs chroots bench bench-check stress programs soak fuzz package install deb container clean

SECONDS ?= 600
MINUTES ?= 30
SEED ?=
ONLY ?=
BENCH ?= all
PREFIX ?= /usr/local
DESTDIR ?=
BENCH_FLAGS ?= --rivals --full
BASE ?=
ROWS ?=
PAIRS ?=
TARGET ?=
FUZZ_FLAGS ?=
LOAD ?= 120

help:
	@echo 'make run     build and run the tour (under 90 s on two cores)'
	@echo 'make test    every suite, and one row of the matrix of fallbacks       [ROW=n]'
	@echo 'make test-lab  the suites of the laboratory (lab/)'
	@echo 'make lint    format, lints, documentation, minimum Rust version'
	@echo 'make check   lint, book, packages, licences, loom, Miri, sanitizers, all rows'
	@echo 'make check-aarch64  every suite for Arm, under qemu-user        [ONLY="name ..."]'
	@echo 'make docs    the reference of the API and the book'
	@echo 'make chroots make run and make test on Debian 12, 13 and sid [RELEASES=trixie COMMANDS=run]'
	@echo 'make bench   every benchmark beside its rivals            [BENCH=name BENCH_FLAGS=...]'
	@echo 'make bench-check  this tree against a commit, in pairs    [BASE=commit ROWS=a,b PAIRS=15]'
	@echo 'make stress  every suite again and again on a busy machine [MINUTES=30]'
	@echo 'make programs  real programs under kumi run, and their page     [LOAD=120 ONLY=name]'
	@echo 'make soak    seeded stress, release build                 [SECONDS=600 SEED=number ONLY=faults]'
	@echo 'make fuzz    every fuzzer, an hour each            [TARGET=name SECONDS=3600 FUZZ_FLAGS=--minimise]'
	@echo 'make package verify that each crate builds from its package alone'
	@echo 'make install kumi, the C library, manual pages            [PREFIX=/usr/local DESTDIR=]'
	@echo 'make deb     Debian packages, into target/debian'
	@echo 'make container  an image with kumi, where podman, buildah or docker runs'
	@echo 'make clean   remove what was built'

run:
	@scripts/setup run
	cargo build --release -p kumihimo-run -p kumihimo-preload
	cargo run --release -p kumi-lab -- tour

test:
	@scripts/setup test
	@cargo xtask test $(if $(ROW),--row $(ROW))

# The benchmarks, simulations and designs that exist for comparison.
test-lab:
	@scripts/setup test
	@cargo xtask test --laboratory

lint:
	@cargo xtask lint

check:
	@scripts/setup check
	@cargo xtask check

# Cross-builds, and runs under qemu-user; needs root once, for binfmt_misc: make check-aarch64 ONLY=runtime
check-aarch64:
	@scripts/setup aarch64
	@cargo xtask check-aarch64 $(ONLY)

docs:
	@cargo xtask docs

# Fresh systems by debootstrap; needs root: make chroots RELEASES=trixie,sid COMMANDS=run
chroots:
	@RELEASES='$(RELEASES)' COMMANDS='$(COMMANDS)' scripts/chroots

bench:
	@scripts/setup bench
	GOTOOLCHAIN=local PATH="/usr/local/go/bin:$$PATH" cargo run --release -p kumi-lab -- \
		bench $(BENCH) $(BENCH_FLAGS) --json target/bench.jsonl --report target/bench

# Fails where a row got slower than in BASE: make bench-check BASE=origin/main
bench-check:
	@cargo xtask bench-check --base '$(BASE)' $(if $(ROWS),--rows '$(ROWS)') $(if $(PAIRS),--pairs '$(PAIRS)')

stress:
	@scripts/setup test
	cargo xtask stress --minutes '$(MINUTES)'

# What is missing is skipped and named; scripts/setup installs it where it may.
programs:
	@scripts/setup programs
	@cargo xtask programs --release --times 20 --others 3 --load-seconds '$(LOAD)' --page $(ONLY)

soak:
	@scripts/soak '$(SECONDS)' '$(SEED)' '$(ONLY)'

# With nightly; cargo-fuzz is built if it is not there. What is covered: FUZZ_FLAGS=--coverage
fuzz: SECONDS = 3600
fuzz:
	@cargo xtask fuzz $(if $(TARGET),--target '$(TARGET)') --seconds '$(SECONDS)' $(FUZZ_FLAGS)

# Each crate that can be published, built from its package alone.
package:
	@cargo xtask package

# kumi, the C library, header, manual pages, completions: make install PREFIX=/usr DESTDIR=/tmp/stage
install:
	@DESTDIR='$(DESTDIR)' scripts/install '$(PREFIX)'

deb:
	@cargo xtask deb

container:
	@cargo xtask container

clean:
	cargo clean
