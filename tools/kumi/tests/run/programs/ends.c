/* Ends by the signal that its argument names, or with status 9. */
#include "check.h"

#include <signal.h>

static void *ends(void *argument) {
    if (argument != NULL) {
        raise(atoi(argument));
    }
    exit(9);
}

int main(int count, char **arguments) {
    join(create(ends, count > 1 ? arguments[1] : NULL));
    return 0;
}
