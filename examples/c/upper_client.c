/* Calls the gate `upper` with its argument: upper_client TEXT. */
#include <kumihimo.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  const char *text = argc > 1 ? argv[1] : "hello";
  kumi_gate *gate;
  kumi_bytes reply = KUMI_BYTES_INIT;
  int error = kumi_gate_connect(&gate, "upper", NULL);
  if (error == 0) {
    error = kumi_gate_call(gate, text, strlen(text), &reply, 30 * 1000000000LL); /* 30 s */
    if (error == 0) printf("%.*s\n", (int)reply.length, (const char *)reply.data);
    kumi_bytes_free(&reply);
    kumi_gate_close(gate);
  }
  if (error != 0) fprintf(stderr, "%s\n", kumi_error_text());
  return error != 0;
}
