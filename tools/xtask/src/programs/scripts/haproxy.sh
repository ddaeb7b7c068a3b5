#!/usr/bin/env bash
# HAProxy with four threads before a server of CPython.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
head -c 20000 /dev/urandom >file
python3 "$FILES/server.py" "$PORT2" file >behind.log 2>&1 &
behind=$!
await_port $behind "$PORT2"
cat >conf <<C
global
  nbthread 4
  maxconn 1000
defaults
  mode http
  timeout client 20s
  timeout server 20s
  timeout connect 20s
frontend in
  bind 127.0.0.1:$PORT
  default_backend out
backend out
  server one 127.0.0.1:$PORT2
C
run haproxy -db -f "$PWD/conf" >server.log 2>&1 &
server=$!
await_port $server "$PORT"
load http "$PORT" --connections 50 --file file --path / || die 'the load'
stop TERM $server
kill -TERM $behind
wait $behind
