#!/usr/bin/env bash
# gdb attached to a program with 20 threads: it stops, shows its stacks, and goes on.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
cc -O1 -g -pthread -o threads "$FILES/threads.c" || die 'cc'
run ./threads >out 2>err &
program=$!
await $program grep -q ready out
for _ in 1 2 3; do
  gdb -nx -batch -iex 'set debuginfod enabled off' -p $program -ex 'info threads' \
    -ex 'thread apply all bt' -ex detach >gdb.log 2>&1 || die 'gdb'
  has_lines 1 'Inferior 1 .* detached' gdb.log
  grep -q '^#1 ' gdb.log || die 'gdb shows no stack'
done
kill -USR1 $program
wait $program
echo "end: $?"
cat out err
