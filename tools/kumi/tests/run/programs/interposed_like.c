/* The note of a program with kumihimo::interpose!(). */

#include <stdio.h>

__attribute__((section(".note.kumihimo"), used)) static const struct {
    unsigned name_bytes, bytes, kind;
    char name[12];
} note = {9, 0, 1, "Kumihimo"};

int main(void) {
    puts("ran");
    return 0;
}
