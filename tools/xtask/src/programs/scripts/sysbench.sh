#!/usr/bin/env bash
# sysbench's own tests of threads and locks: sysbench.sh threads|mutex
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
run sysbench "$1" --threads=64 --events=2000 --time=0 run >out 2>&1 || die "$(tail -n 3 out)"
grep -E 'total number of events|Number of threads' out
