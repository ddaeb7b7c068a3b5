/* Gives up the rights of root before it creates a thread, as servers do in their children. */
#include "check.h"

#include <grp.h>

/* A user whom no other test lets use the event source bpf. */
#define USER 65431

static void *returns(void *argument) { return argument; }

int main(void) {
    if (getuid() == 0) {
        RETURNS(0, setgroups(0, NULL));
        RETURNS(0, setgid(USER));
        RETURNS(0, setuid(USER));
    }
    join(create(returns, NULL));
    return succeed();
}
