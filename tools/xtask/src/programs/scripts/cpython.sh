#!/usr/bin/env bash
# A test of CPython's own suite: cpython.sh NAME. Prints the verdict of each test in it. If one
# failed, prints all output as well, marked for the filter, because warnings depend on time.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
run python3 -m test -u network --junit-xml "$PWD/results.xml" -v "$1" >log 2>&1
end=$?
python3 - <<'P' || die "no results: $(tail -n 3 log)"
import sys
import xml.etree.ElementTree as tree
passed = 0
for test in tree.parse("results.xml").iter("testcase"):
    kinds = [child.tag for child in test if child.tag in ("error", "failure", "skipped")]
    print(test.get("name"), *(kinds or ["passed"]))
    passed += not kinds
sys.exit(passed == 0)
P
[ $end -eq 0 ] || sed 's/^/log: /' log
exit $end
