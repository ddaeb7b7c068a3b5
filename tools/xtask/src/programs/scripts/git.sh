#!/usr/bin/env bash
# git with threads: adds, packs with deltas, searches, clones, checks.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
mkdir one
cp -r "${ROOT:?}/docs" "$ROOT/crates" one
cd one || die 'no folder'
run git init -q .
run git config index.threads 4
run git config pack.threads 4
for i in 1 2 3; do
  find . -path ./.git -prune -o -name '*.md' -exec sed -i "1s/$/ $i/" {} +
  run git add -A || die 'add'
  run git commit -q -m "commit $i" || die 'commit'
done
run git gc -q --aggressive || die 'gc'
run git grep --threads 4 -c microprocess >../found || die 'grep'
sort ../found | sha256sum
run git fsck --strict 2>&1 || die 'fsck'
run git clone -q --no-local . ../two || die 'clone'
run git -C ../two rev-list --all --objects >../objects || die 'rev-list'
sort ../objects | sha256sum
run git -C ../two checkout -q HEAD~1 && run git -C ../two status --short | wc -l
run git -c checkout.workers=4 -C ../two checkout -q 'HEAD@{1}' && run git -C ../two rev-parse HEAD
