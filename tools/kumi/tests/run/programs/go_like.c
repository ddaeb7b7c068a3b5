/* Has the section by which programs of Go are known. */
#include "check.h"

__attribute__((used, section(".go.buildinfo"))) static const char information[] = "go1";

static void *returns(void *argument) {
    return argument;
}

int main(void) {
    join(create(returns, NULL));
    return succeed();
}
