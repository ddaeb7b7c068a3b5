#!/usr/bin/env bash
# pgbench and psql against a plain server of PostgreSQL.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
bin=$(pg_config --bindir)
# The server refuses to run as root.
as=()
if [ "$(id -u)" -eq 0 ]; then
  as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
  chown postgres .
fi
"${as[@]}" "$bin/initdb" -D data -A trust -U tester --no-sync >initdb.log 2>&1 ||
  die "$(tail -n 2 initdb.log)"
"${as[@]}" "$bin/postgres" -D data -p "$PORT" -h 127.0.0.1 -k "$PWD" -F >server.log 2>&1 &
server=$!
export PGHOST=127.0.0.1 PGPORT=$PORT PGUSER=tester PGDATABASE=postgres
await $server psql -c 'select 1'
run pgbench -i -q -s 1 >init.log 2>&1 || die "$(tail -n 3 init.log)"
run pgbench -j 4 -c 16 -T "$LOAD_SECONDS" >bench.log 2>&1 || die "$(tail -n 5 bench.log)"
grep 'failed transactions' bench.log || die "$(tail -n 20 bench.log)"
# As many rows of the history as transactions, and each of the sums is that of their deltas.
done=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' bench.log)
[ "$done" -gt 0 ] || die 'no transactions'
rows=$(run psql -At -c 'select count(*) from pgbench_history')
[ "$done" = "$rows" ] || die "$rows rows in the history of $done transactions"
sums=$(run psql -At -c "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from
  pgbench_history), (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from
  pgbench_history), (select sum(bbalance) from pgbench_branches) = (select sum(delta) from
  pgbench_history)")
[ "$sums" = 't|t|t' ] || die "the sums: $sums"
kill -INT $server
wait $server
