#!/usr/bin/env bash
# redis-benchmark with four threads, against a plain server.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
redis-server --port "$PORT" --bind 127.0.0.1 --save '' --appendonly no >server.log 2>&1 &
server=$!
await $server redis-cli -p "$PORT" ping
run redis-benchmark -p "$PORT" --threads 4 -c 50 -n 40000 -r 1000 -P 4 -t set,get,incr --csv |
  cut -d, -f1
# Each increment is of one of 1000 counters: their sum is the number of requests.
redis-cli -p "$PORT" eval "local sum = 0
  for _, key in ipairs(redis.call('keys', 'counter:*')) do sum = sum + redis.call('get', key) end
  return sum" 0 >sum
grep -x 40000 sum || die "the sum of the counters: $(cat sum)"
redis-cli -p "$PORT" dbsize
kill -TERM $server
wait $server
