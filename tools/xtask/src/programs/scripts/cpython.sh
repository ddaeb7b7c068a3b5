#!/usr/bin/env bash
# A test of CPython's own suite: cpython.sh NAME. Prints the verdict of each test in it, and all
# output if one failed: warnings in the output depend on time.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
run python3 -m test -u network --junit-xml "$PWD/results.xml" -v "$1" >log 2>&1
end=$?
python3 - <<'P' || die "no results: $(tail -n 3 log)"
import xml.etree.ElementTree as tree
for test in tree.parse("results.xml").iter("testcase"):
    kinds = [child.tag for child in test if child.tag in ("error", "failure", "skipped")]
    print(test.get("name"), *(kinds or ["passed"]))
P
[ $end -eq 0 ] || cat log
exit $end
