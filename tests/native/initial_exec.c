/* A library with initial-exec variables: at a fixed distance from FS, so ld.so must write them into every block. */
#define IE __attribute__((tls_model("initial-exec")))
__thread int number IE = 4321;
__thread char bytes[40] IE = {9, 8, 7};
int get(void) { return number; }
void set(int to) { number = to; bytes[39] = (char)to; }
int end(void) { return bytes[39]; }
