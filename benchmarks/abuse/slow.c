/* Makes each sync of a file take SLOW_SYNC_MS longer, as a poor disk would. Preloaded into a node. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void wait_for_the_disk(void) {
    const char *text = getenv("SLOW_SYNC_MS");
    long ms = text ? atol(text) : 0;
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    if (ms > 0)
        nanosleep(&time, NULL);
}

int fdatasync(int file) {
    wait_for_the_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
}

int fsync(int file) {
    wait_for_the_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}
