#!/usr/bin/env bash
# SQLite with threads that sort.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
run sqlite3 base.db >out <<'S' || die 'sqlite3'
pragma threads=4;
pragma cache_size=200;
create table t(a, b);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 300000)
  insert into t select (x * 7919) % 1000003, 'text ' || x from c;
create index i on t(a);
create index j on t(b);
select count(*), sum(a), min(b), max(b) from t;
select a, b from t order by b desc, a limit 3;
pragma integrity_check;
S
cat out
