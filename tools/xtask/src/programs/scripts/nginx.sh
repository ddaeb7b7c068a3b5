#!/usr/bin/env bash
# nginx with files read by a pool of 16 threads.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
mkdir htdocs
chmod 755 . htdocs
head -c 300000 /dev/urandom >htdocs/file
# Without the file in the page cache, sendfile and the threads wait; with it they do not.
cat >conf <<C
user $(id -un);
daemon off;
worker_processes 1;
pid $PWD/pid;
error_log $PWD/server.log warn;
thread_pool default threads=16;
events { worker_connections 1024; }
http {
  access_log off;
  aio threads;
  sendfile off;
  directio 4k;
  keepalive_requests 100000;
  client_body_temp_path $PWD/t1;
  proxy_temp_path $PWD/t2;
  fastcgi_temp_path $PWD/t3;
  uwsgi_temp_path $PWD/t4;
  scgi_temp_path $PWD/t5;
  server { listen 127.0.0.1:$PORT; root $PWD/htdocs; }
}
C
run nginx -p "$PWD" -c "$PWD/conf" -e "$PWD/server.log" &
server=$!
await_port $server "$PORT"
load http "$PORT" --connections 40 --file htdocs/file --path /file || die 'the load'
stop QUIT $server
cat server.log
