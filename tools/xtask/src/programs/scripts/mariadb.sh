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
# A deadlock (1213) is a usual result. A lock wait of 50 s (1205) is none: a lost wake-up ends so.
bench() {
  sysbench oltp_read_write --db-driver=mysql --mysql-host=127.0.0.1 --mysql-port="$PORT" \
    --mysql-user=root --tables=4 --table-size=5000 --threads="$users" --report-interval=0 \
    --mysql-ignore-errors=1213,1020 "$@"
}
# Whether the clients have committed since the start of the server.
# shellcheck disable=SC2317 # Called by `await`.
has_commits() {
  [ "$(sql "select variable_value > 0 from information_schema.global_status
    where variable_name = 'com_commit'")" = 1 ]
}
start
sql 'create database sbtest' || die 'create database'
bench --threads=4 prepare >prepare.log 2>&1 || die "$(tail -n 3 prepare.log)"
if [ "$kills" ]; then
  for _ in 1 2 3; do
    bench --time=60 run >bench.log 2>&1 &
    clients=$!
    sleep "$((LOAD_SECONDS / 3 + 1))"
    await $server has_commits
    kill -0 $clients 2>/dev/null || die "the clients ended before the kill: $(tail -n 5 bench.log)"
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
  sql "select count(*), min(id), max(id), count(distinct id) from sbtest.sbtest$table" ||
    die "sbtest$table"
done
# Waits for the purge of deleted records. Beside it the check warns of records of an index whose
# row is purged already (MDEV-24402). Records that no purge will remove are found afterwards too.
sql 'set global innodb_max_purge_lag_wait = 0' || die 'the wait for the purge'
mariadb-check --no-defaults --extended -u root -S "$PWD/socket" sbtest || die 'mariadb-check'
stop TERM $server
has_lines 1 'mariadbd: Shutdown complete' server.log
grep -E '\[ERROR\]|[Aa]ssert|[Cc]orrupt|got signal' server.log
exit 0
