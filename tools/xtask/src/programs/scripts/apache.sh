#!/usr/bin/env bash
# Apache with the worker MPM: two processes with 64 threads each.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
modules=/usr/lib/apache2/modules
mkdir htdocs
# The server's user reads it.
chmod 755 . htdocs
head -c 40000 /dev/urandom >htdocs/file
cat >conf <<C
ServerRoot $PWD
LoadModule mpm_worker_module $modules/mod_mpm_worker.so
LoadModule authz_core_module $modules/mod_authz_core.so
Listen 127.0.0.1:$PORT
ServerName localhost
DocumentRoot $PWD/htdocs
PidFile $PWD/pid
ErrorLog $PWD/server.log
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 30
StartServers 2
ServerLimit 2
ThreadsPerChild 64
MaxRequestWorkers 128
MinSpareThreads 1
MaxSpareThreads 128
User www-data
Group www-data
C
run apache2 -f "$PWD/conf" -DFOREGROUND &
server=$!
await_port $server "$PORT"
load http "$PORT" --connections 100 --file htdocs/file --path /file || die 'the load'
stop TERM $server
has_lines 1 'caught SIGTERM, shutting down' server.log
grep -E ':(error|crit|alert|emerg)\]|exit signal' server.log
exit 0
