#!/usr/bin/env bash
# gcc with link-time optimisation by two processes, and what it has built.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
for i in 1 2 3 4 5 6; do
  printf 'int f%s(int x) { int s = 0; for (int i = 0; i < x; i++) s += i %% %s; return s; }\n' \
    "$i" "$((i + 1))" >"f$i.c"
done
{
  echo '#include <stdio.h>'
  echo '#define print(x) printf("%d ", x)'
  for i in 1 2 3 4 5 6; do echo "int f$i(int);"; done
  echo 'int main(void) {'
  for i in 1 2 3 4 5 6; do echo "  print(f$i($i * 1000));"; done
  echo '}'
} >main.c
run gcc -O2 -flto=2 -pipe -o program main.c f?.c || die 'gcc'
./program
sha256sum <program
