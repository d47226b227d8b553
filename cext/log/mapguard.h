/* An access to a mapped file that another process truncated, or whose page cannot be read, raises
   SIGBUS. A thread names the maps that it is about to read; if the signal comes from one of them,
   the
   handler maps zeros over the rest of that map and the thread goes on: the content of an index is
   checked anyway. For any other SIGBUS the handler calls the one that was installed before it, or
   the
   process ends as without this guard.

   Each module that includes this file has its own ranges, count and handler. The handler that was
   installed last calls the one before it when the address is in none of its own ranges. */
#ifndef BARNABAS_MAPGUARD_H
#define BARNABAS_MAPGUARD_H
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__GLIBC__)
/* The loader reserves it: a first access inside the handler could allocate memory. */
#define MAPGUARD_TLS static __thread __attribute__((tls_model("initial-exec")))
#else
#define MAPGUARD_TLS static __thread
#endif

MAPGUARD_TLS volatile uintptr_t mapguard_from[2];
MAPGUARD_TLS volatile uintptr_t mapguard_to[2];
MAPGUARD_TLS volatile int64_t mapguard_own;  /* lost pages that this thread met */
static struct sigaction mapguard_previous;
static int mapguard_installed;
static uintptr_t mapguard_page;
static int64_t mapguard_losses;

static inline void mapguard_enter(const void *a, int64_t a_size, const void *b, int64_t b_size) {
    mapguard_from[0] = (uintptr_t)a;
    mapguard_to[0] = (uintptr_t)a + (uintptr_t)a_size;
    mapguard_from[1] = (uintptr_t)b;
    mapguard_to[1] = (uintptr_t)b + (uintptr_t)b_size;
    __asm__ volatile("" ::: "memory");
}

static inline void mapguard_leave(void) {
    __asm__ volatile("" ::: "memory");
    mapguard_to[0] = mapguard_from[0] = mapguard_to[1] = mapguard_from[1] = 0;
}

static void mapguard_on_bus(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < 2 && info->si_code > 0; i++) {
        if (at < mapguard_from[i] || at >= mapguard_to[i]) continue;
        uintptr_t page = at & ~(mapguard_page - 1);
        if (mmap((void *)page, mapguard_to[i] - page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
            __atomic_add_fetch(&mapguard_losses, 1, __ATOMIC_RELAXED);
            mapguard_own++;
            return;
        }
    }
    if (mapguard_previous.sa_flags & SA_SIGINFO) {
        mapguard_previous.sa_sigaction(number, info, context);
    } else if (mapguard_previous.sa_handler != SIG_DFL && mapguard_previous.sa_handler != SIG_IGN) {
        mapguard_previous.sa_handler(number);
    } else {
        struct sigaction fatal;
        memset(&fatal, 0, sizeof fatal);
        fatal.sa_handler = SIG_DFL;
        sigaction(SIGBUS, &fatal, 0);
        if (info->si_code <= 0) raise(number);  /* kill() sent it: it does not come again */
    }
}

/* Installs the handler once, and again when the default action was restored meanwhile. It leaves a
   handler that another module installed over this one in place, because that one may call this one.
   */
static inline void mapguard_install(void) {
    struct sigaction now, ours;
    if (sigaction(SIGBUS, 0, &now) < 0) return;
    if (mapguard_installed && ((now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL)) return;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = mapguard_on_bus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    mapguard_page = (uintptr_t)sysconf(_SC_PAGESIZE);
    mapguard_previous = now;
    mapguard_installed = sigaction(SIGBUS, &ours, 0) == 0;
}

static inline int64_t mapguard_own_count(void) { return mapguard_own; }

static inline int64_t mapguard_count(void) {
    return __atomic_load_n(&mapguard_losses, __ATOMIC_RELAXED);
}
#endif
