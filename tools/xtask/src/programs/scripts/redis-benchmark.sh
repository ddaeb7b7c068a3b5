#!/usr/bin/env bash
# redis-benchmark with four threads, against a plain server.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
redis-server --port "$PORT" --bind 127.0.0.1 --save '' --appendonly no >server.log 2>&1 &
server=$!
await $server redis-cli -p "$PORT" ping
run redis-benchmark -p "$PORT" --threads 4 -c 50 -n 40000 -r 1000 -P 4 -t set,get,incr --csv |
  cut -d, -f1
redis-cli -p "$PORT" get counter:__rand_int__
redis-cli -p "$PORT" dbsize
kill -TERM $server
wait $server
