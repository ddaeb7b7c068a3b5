/* General-dynamic variables: allocated for a thread at its first use. */
__thread int dynamic_value = 1234;
__thread char dynamic_big[20000] = {7};
int *dynamic_address(void) { return &dynamic_value; }
char *dynamic_big_address(void) { return dynamic_big; }
