#!/usr/bin/env bash
# stunnel with a thread for each connection, before a server of CPython; as many clients of TLS come
# through a second stunnel, which runs plainly.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
head -c 20000 /dev/urandom >file
python3 "$FILES/server.py" "$PORT2" file >behind.log 2>&1 &
behind=$!
await_port $behind "$PORT2"
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 30 \
  -subj /CN=localhost 2>openssl.log || die "$(tail -n 1 openssl.log)"
printf 'foreground=yes\npid=\n[tls]\naccept=127.0.0.1:%s\nconnect=127.0.0.1:%s\ncert=%s\nkey=%s\n' \
  "$PORT" "$PORT2" "$PWD/cert.pem" "$PWD/key.pem" >server.conf
printf 'foreground=yes\npid=\nclient=yes\n[tls]\naccept=127.0.0.1:%s\nconnect=127.0.0.1:%s\n' \
  "$PORT3" "$PORT" >client.conf
run stunnel4 server.conf >server.log 2>&1 &
server=$!
await_port $server "$PORT"
stunnel4 client.conf >client.log 2>&1 &
client=$!
await_port $client "$PORT3"
load http "$PORT3" --connections 40 --file file --path / || die 'the load'
kill -TERM $client
wait $client
stop TERM $server
kill -TERM $behind
wait $behind
