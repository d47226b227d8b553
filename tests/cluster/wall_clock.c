/* LD_PRELOAD: adds the milliseconds in the file WALL_CLOCK_MOVED_MS (8 bytes, little-endian) to the
   wall clock of a process, in whole seconds. Another process may change them at any time; the monotonic clock stays. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static volatile int64_t *moved_ms;

__attribute__((constructor)) static void begin(void)
{
    int fd = open(getenv("WALL_CLOCK_MOVED_MS"), O_RDONLY | O_CLOEXEC);
    void *at = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
    real = dlsym(RTLD_NEXT, "clock_gettime");
    if (at == MAP_FAILED || !real)
        abort();
    moved_ms = at;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, at);
    if (status == 0 && moved_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *moved_ms / 1000;
    return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return status;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
