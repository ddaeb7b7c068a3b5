# shellcheck shell=bash
# Sourced by the scripts of `cargo xtask programs`. Each runs in a folder of its own, with these:
# $PORT, $PORT2 and $PORT3, free ports; $LOAD_SECONDS, the duration of the load; $CACHE, a folder that
# outlives the script; $FILES, the folder of this file; `run PROGRAM...`, which starts the program
# that is tested; `load PROTOCOL...`, which starts the clients.
set -u

# Ends the script with a failure.
die() {
  echo "failed: $1"
  exit 1
}

# Waits until a command succeeds, as long as the server lives: await PID COMMAND... Tries are
# counted, because they make progress themselves where the server does not.
await() {
  local pid=$1
  shift
  for ((try = 0; try < 1000; try++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    kill -0 "$pid" 2>/dev/null || die "the server ended: $(tail -n 5 server.log)"
    sleep 0.1
  done
  die "the server does not answer: $(tail -n 5 server.log)"
}

# Waits until something accepts connections at a port: await_port PID PORT
await_port() {
  await "$1" bash -c "exec 3<>/dev/tcp/127.0.0.1/$2"
}

# Fails unless the file has so many lines that match: has_lines NUMBER PATTERN FILE. A number that
# is merely printed would be right if it were 0 in both runs.
has_lines() {
  local found
  found=$(grep -c "$2" "$3")
  [ "$found" -eq "$1" ] || die "$found lines instead of $1 match '$2' in $3"
}

# Sends a signal to the server and prints how it ended: stop SIGNAL PID
stop() {
  kill "-$1" "$2" || die 'the server has ended before its stop'
  wait "$2"
  echo "end of the server: $?"
}
