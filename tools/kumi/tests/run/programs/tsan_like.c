/* Has the symbol by which programs with ThreadSanitizer are known. */
#include "check.h"

void __tsan_init(void);

void __tsan_init(void) {
}

static void *returns(void *argument) {
    return argument;
}

int main(void) {
    join(create(returns, NULL));
    return succeed();
}
