#!/usr/bin/env bash
# zstd with four threads, both ways.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
find "${ROOT:?}/docs" "$ROOT/crates" -name '*.md' -o -name '*.rs' | sort | xargs cat >in
[ -s in ] || die 'no input'
for level in 3 19; do
  run zstd -q -T4 -B512K -$level -f in -o out.zst || die 'zstd'
  run zstd -q -dc out.zst | cmp - in || die 'other contents'
  sha256sum <out.zst
done
