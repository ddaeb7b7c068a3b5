#!/usr/bin/env bash
# Redis with I/O threads: load, a snapshot by a forked child, a restart from the snapshot.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
start() {
  run redis-server --port "$PORT" --bind 127.0.0.1 --io-threads 4 --io-threads-do-reads yes \
    --dir "$PWD" --save '' --appendonly no --daemonize no >>server.log 2>&1 &
  server=$!
  await $server redis-cli -p "$PORT" ping
}
start
load redis "$PORT" --connections 100 || die 'the load'
before=$(redis-cli -p "$PORT" debug digest-value | sort; redis-cli -p "$PORT" dbsize)
redis-cli -p "$PORT" bgsave
# The snapshot is there when no child is left.
until redis-cli -p "$PORT" info persistence | grep -q 'rdb_bgsave_in_progress:0'; do sleep 0.1; done
redis-cli -p "$PORT" info persistence | grep 'rdb_last_bgsave_status'
stop TERM $server
start
after=$(redis-cli -p "$PORT" debug digest-value | sort; redis-cli -p "$PORT" dbsize)
[ "$before" = "$after" ] && echo 'the snapshot has all keys'
stop TERM $server
grep -c 'Redis is now ready to exit, bye bye' server.log
grep -E 'crashed|ASSERTION|BUG REPORT' server.log
exit 0
