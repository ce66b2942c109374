/* What a container and a plain process run when their start is measured: it prints a line and ends. Linked statically. */
#include <unistd.h>

int main(void) { return write(1, "ready\n", 6) == 6 ? 0 : 1; }
