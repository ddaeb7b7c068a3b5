# shellcheck shell=bash
# Sourced by the scripts beside it: runs suites and steps, counts, and prints the sums.
# A test that finds out by itself that it cannot run here prints "[skip] NAME: WHY" (kumihimo_tests::skip); it is counted
# as skipped, not as passed.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
target=${CARGO_TARGET_DIR:-target}
logs=$target/suites
mkdir -p "$logs"
passed=0 failed=0 skipped=0 summary=()

say() { summary+=("$1"); printf '%s\n' "$1"; }

# counts FILE: "passed failed skipped" of what cargo test (or a nested script's closing line) printed.
counts() {
  awk '
    match($0, /^test result: [A-Za-z]+\. [0-9]+ passed; [0-9]+ failed; [0-9]+ ignored/) {
      split(substr($0, RSTART, RLENGTH), w, " "); p += w[4]; f += w[6]; s += w[8] }
    /\[skip\] / { s++; p-- }
    /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { whole = $1 " " $3 " " $5 }
    END { print whole != "" ? whole : p + 0 " " f + 0 " " s + 0 }' "$1"
}

# what_failed FILE: the tests that failed with what they printed, what stands before the end of each program that crashed, and the end: there
# is what hangs, or what the compiler says.
what_failed() {
  grep -E '^test .* FAILED$' "$1"
  awk '/^---- .* stdout ----$/ { on = 1 } on { print } /^test result:/ { on = 0 }' "$1"
  grep -E -B 40 "process didn't exit successfully.*signal" "$1"
  printf 'the end of it:\n'
  tail -n 40 "$1"
  printf 'all that it printed: %s\n' "$1"
}

# suite NAME COMMAND...: a suite that dies, hangs (LIMIT seconds, 900) or runs no test has failed. Its output goes to a file;
# of one that failed, what failed is shown. (Some tests provoke panics: among thousands of lines nobody would see the one that matters.)
suite() {
  local name=$1 rc p f s note='' log
  shift
  log=$logs/${name//[^A-Za-z0-9=_-]/-}.log
  printf '\n== %s: %s\n' "$name" "$*"
  timeout -k 10 "${LIMIT:-900}" "$@" </dev/null >"$log" 2>&1
  rc=$?
  read -r p f s < <(counts "$log")
  if [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then
    f=$((f + 1)) note=" (no end after ${LIMIT:-900} s)"
  elif [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then
    f=1 note=" (exit code $rc)"
  elif [ $((p + f)) -eq 0 ]; then
    f=1 note=' (ran no test)'
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  grep -E '^\[skip\] ' "$log"
  if [ "$f" -ne 0 ]; then what_failed "$log"; fi
  say "suite $name: $p passed, $f failed, $s skipped$note"
}

# step NAME COMMAND...: one check that passes or fails as a whole.
step() {
  local name=$1
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  if "$@" </dev/null 2>&1; then
    passed=$((passed + 1))
    say "step $name: passed"
  else
    failed=$((failed + 1))
    say "step $name: FAILED"
  fi
}

# skip NAME WHY: something that cannot be done here.
skip() {
  skipped=$((skipped + 1))
  say "skipped $1: $2"
}

# The summary again in one place, then the closing line; non-zero unless all that ran has passed and something ran.
finish() {
  printf '\n== summary\n'
  printf '%s\n' "${summary[@]}"
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
