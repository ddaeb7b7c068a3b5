#!/usr/bin/env bash
# Redis with I/O threads: load, a snapshot by a forked child, a restart from the snapshot.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
start() {
  run redis-server --port "$PORT" --bind 127.0.0.1 --io-threads 4 --io-threads-do-reads yes \
    --enable-debug-command local --dir "$PWD" --save '' --appendonly no --daemonize no \
    >>server.log 2>&1 &
  server=$!
  await $server redis-cli -p "$PORT" ping
}
# The digest of all keys with their values, and the number of keys.
contents() {
  local digest
  digest=$(redis-cli -p "$PORT" debug digest)
  # Without a key all of its digits are 0.
  [[ $digest =~ ^[0-9a-f]{40}$ && $digest =~ [1-9a-f] ]] || die "the digest: $digest"
  echo "$digest $(redis-cli -p "$PORT" dbsize)"
}
# shellcheck disable=SC2317 # Called by `await`.
is_saved() { redis-cli -p "$PORT" info persistence | grep -q 'rdb_bgsave_in_progress:0'; }
start
load redis "$PORT" --connections 100 || die 'the load'
before=$(contents) || die "$before"
redis-cli -p "$PORT" bgsave
# The snapshot is there when no child is left.
await $server is_saved
redis-cli -p "$PORT" info persistence | grep 'rdb_last_bgsave_status:ok' ||
  die 'the snapshot'
stop TERM $server
start
after=$(contents) || die "$after"
[ "$before" = "$after" ] || die "the snapshot has $after instead of $before"
stop TERM $server
has_lines 2 'Redis is now ready to exit, bye bye' server.log
grep -E 'crashed|ASSERTION|BUG REPORT' server.log
exit 0
