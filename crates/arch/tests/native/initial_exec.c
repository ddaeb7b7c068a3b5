/* Initial-exec variables: at a fixed distance from FS, so ld.so must write them into every thread's block. */
#define IE __attribute__((tls_model("initial-exec")))
__thread int static_value IE = 4321;
__thread char static_bytes[40] IE = {9, 8, 7};
static int seen_by_constructor;
__attribute__((constructor)) static void constructor(void) { seen_by_constructor = static_value; }
int *static_address(void) { return &static_value; }
char *static_bytes_address(void) { return static_bytes; }
int constructor_saw(void) { return seen_by_constructor; }
