#!/usr/bin/env bash
# memcached with four worker threads.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
run memcached -u "$(id -un)" -t 4 -l 127.0.0.1 -p "$PORT" -U 0 -m 256 -c 2000 2>server.log &
server=$!
await_port $server "$PORT"
load memcached "$PORT" --connections 200 || die 'the load'
stop TERM $server
cat server.log
