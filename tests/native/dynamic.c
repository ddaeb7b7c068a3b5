/* A library with general-dynamic variables: allocated for a thread at its first use. */
__thread int number = 1234;
__thread char large[20000] = {7};
int get(void) { return number; }
void set(int to) { number = to; large[19999] = (char)to; }
int end(void) { return large[19999]; }
