#!/usr/bin/env bash
# An echo server in Java with a platform thread for each connection.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
javac -d . "$FILES/Echo.java" || die 'javac'
run java -Xmx256m -cp . Echo "$PORT" 2>server.log &
server=$!
await_port $server "$PORT"
load echo "$PORT" --connections 200 || die 'the load'
stop TERM $server
cat server.log
