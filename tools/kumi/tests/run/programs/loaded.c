/* A library for LD_PRELOAD that says that it is loaded, before `main`. */
#include <stdio.h>

__attribute__((constructor)) static void begin(void) {
    puts("loaded");
    fflush(stdout);
}
