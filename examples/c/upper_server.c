/* Serves the gate `upper` until standard input ends. */
#include <ctype.h>
#include <kumihimo.h>
#include <stdio.h>

static int upper(const void *request, size_t length, kumi_reply *reply, const kumi_caller *caller, void *arg) {
  const unsigned char *letters = request;
  size_t i;
  (void)caller, (void)arg;
  for (i = 0; i < length; i++) {
    char letter = (char)toupper(letters[i]);
    int error = kumi_reply_append(reply, &letter, 1);
    if (error != 0) return error;
  }
  return 0;
}

int main(void) {
  kumi_serving *serving;
  if (kumi_gate_serve(&serving, "upper", NULL, upper, NULL) != 0) {
    fprintf(stderr, "%s\n", kumi_error_text());
    return 1;
  }
  printf("serving\n");
  fflush(stdout);
  while (getchar() != EOF) continue;
  return kumi_serving_close(serving);
}
