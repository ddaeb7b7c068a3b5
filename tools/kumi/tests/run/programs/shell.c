/* Prints its arguments, in a thread, and runs the last one as a command of the shell if it begins
 * with `!`. Ends with the command's status. */
#include "check.h"

#include <sys/wait.h>

static int count;
static char **arguments;

static void *works(void *argument) {
    int status = 0;
    for (int i = 1; i < count; i++) {
        if (arguments[i][0] == '!') {
            fflush(stdout);
            status = system(arguments[i] + 1);
        } else {
            puts(arguments[i]);
        }
    }
    return (char *)argument + WEXITSTATUS(status);
}

int main(int number, char **words) {
    count = number;
    arguments = words;
    char place[256];
    return (int)((char *)join(create(works, place)) - place);
}
