#!/usr/bin/env bash
# xz with four threads, both ways.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
find "${ROOT:?}/docs" "$ROOT/crates" -name '*.md' -o -name '*.rs' | sort | xargs cat >in
[ -s in ] || die 'no input'
run xz -T4 --block-size=512KiB -6 -c in >out.xz || die 'xz'
run xz -T4 -dc out.xz | cmp - in || die 'other contents'
sha256sum <out.xz
