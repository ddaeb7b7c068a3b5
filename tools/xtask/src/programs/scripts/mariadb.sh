#!/usr/bin/env bash
# MariaDB under sysbench's OLTP read-write: mariadb.sh CLIENTS [kill]. With `kill`, the server is
# killed and started anew under load.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
users=$1 kills=${2:-}

if ! [ -d "$CACHE/mariadb" ]; then
  mariadb-install-db --no-defaults --datadir="$CACHE/mariadb.new" --user="$(id -un)" \
    --auth-root-authentication-method=normal --skip-test-db \
    --innodb-log-file-size=32M >install.log 2>&1 || die "$(tail -n 3 install.log)"
  mv "$CACHE/mariadb.new" "$CACHE/mariadb"
fi
cp -r "$CACHE/mariadb" data

sql() { mariadb --no-defaults -u root -S "$PWD/socket" -N -B -e "$1"; }
start() {
  run mariadbd --no-defaults --datadir="$PWD/data" --socket="$PWD/socket" --port="$PORT" \
    --bind-address=127.0.0.1 --user="$(id -un)" --max-connections=1000 --back-log=1000 \
    --innodb-log-file-size=32M --innodb-buffer-pool-size=128M >>server.log 2>&1 &
  server=$!
  await $server sql 'select 1'
}
bench() {
  sysbench oltp_read_write --db-driver=mysql --mysql-host=127.0.0.1 --mysql-port="$PORT" \
    --mysql-user=root --tables=4 --table-size=5000 --threads="$users" --report-interval=0 \
    --mysql-ignore-errors=1213,1020,1205 "$@"
}
start
sql 'create database sbtest'
bench --threads=4 prepare >prepare.log 2>&1 || die "$(tail -n 3 prepare.log)"
if [ "$kills" ]; then
  for _ in 1 2 3; do
    bench --time=60 run >bench.log 2>&1 &
    clients=$!
    sleep "$((LOAD_SECONDS / 3 + 1))"
    kill -KILL $server
    wait $server 2>/dev/null
    # The clients meet the end of their connections.
    wait $clients
    start
  done
else
  bench --time="$LOAD_SECONDS" run >bench.log 2>&1 || die "$(tail -n 5 bench.log)"
  grep -q 'transactions: *[1-9]' bench.log || die "no transactions: $(tail -n 20 bench.log)"
fi
# Each transaction deletes a row and inserts it again.
for table in 1 2 3 4; do
  sql "select count(*), min(id), max(id), count(distinct id) from sbtest.sbtest$table"
done
# The purge of deleted records goes on beside the check, which may find half of one.
sql 'set global innodb_max_purge_lag_wait = 0'
mariadb-check --no-defaults --extended -u root -S "$PWD/socket" sbtest
stop TERM $server
grep -c 'Shutdown complete' server.log
grep -E '\[ERROR\]|[Aa]ssert|[Cc]orrupt|got signal' server.log
exit 0
