/* The first thread leaves, and the last one to end ends the process. */
#include "check.h"

static void *ends_last(void *argument) {
    (void)argument;
    usleep(20000);
    exit(succeed());
}

static void *ends_first(void *argument) {
    return argument;
}

int main(void) {
    for (int i = 0; i < 10; i++) pthread_detach(create(ends_first, NULL));
    pthread_detach(create(ends_last, NULL));
    pthread_exit(NULL);
}
