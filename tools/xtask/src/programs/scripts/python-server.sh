#!/usr/bin/env bash
# ThreadingHTTPServer of CPython.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
head -c 20000 /dev/urandom >file
run python3 "$FILES/server.py" "$PORT" file 2>server.log &
server=$!
await_port $server "$PORT"
load http "$PORT" --connections 50 --file file --path / || die 'the load'
stop TERM $server
cat server.log
