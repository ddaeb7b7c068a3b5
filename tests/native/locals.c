/* Thread-local variables of C, in the program itself. */
#include <errno.h>
#include <stdlib.h>

static __thread int number = 11;
static __thread char text[3000] = "initial";

int c_number(void) { return number; }
void c_set_number(int to) { number = to; text[2999] = (char)to; }
int c_text_end(void) { return text[2999]; }
int c_errno(void) { return errno; }
void c_set_errno(int to) { errno = to; }
