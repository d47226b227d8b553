/* The real system calls behind cext.memory.sys: -errno on failure, interrupted calls are repeated. */
#ifndef BARNABAS_SYSCALLS_H
#define BARNABAS_SYSCALLS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#if defined(__has_include)
#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif
#endif
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REPEAT(type, call) { type r; do r = (call); while (r < 0 && errno == EINTR); return r < 0 ? -errno : r; }

static inline ssize_t real_pread(int fd, void *into, size_t n, int64_t at)
    REPEAT(ssize_t, pread(fd, into, n, at))
static inline ssize_t real_pwritev(int fd, const struct iovec *parts, int count, int64_t at)
    /* One part, as most writes have, is cheaper without a vector. */
    REPEAT(ssize_t, count == 1 ? pwrite(fd, parts->iov_base, parts->iov_len, at)
                               : pwritev(fd, parts, count, at))
static inline int sync_once(int fd) REPEAT(int, fdatasync(fd))
/* After a failure the kernel takes the pages for clean: they stay in memory, a restarted broker would
   read them, and the next fdatasync would succeed without writing them. So they are dropped, and the
   next reader gets what the disk has. */
static inline int real_fdatasync(int fd) {
    int status = sync_once(fd);
    if (status < 0) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return status;
}
static inline int real_ftruncate(int fd, int64_t n) REPEAT(int, ftruncate(fd, n))
/* A file of a log is never a link: who may write to a log directory would choose what is written. */
static inline int real_open(const char *path, int flags, int mode)
    REPEAT(int, open(path, flags | O_CLOEXEC | O_NOFOLLOW, mode))
/* The same without waiting for the disk: -EAGAIN when the kernel does not have the path in memory.
   Linux before 5.12, and filters of system calls that do not know openat2, open as always. */
static inline int real_open_cached(const char *path, int flags, int mode) {
#if defined(SYS_openat2) && defined(RESOLVE_CACHED)
    struct open_how how = {(uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW), 0, RESOLVE_CACHED};
    int r = flags & O_CREAT ? -1 : (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (r >= 0) return r;
    if (!(flags & O_CREAT) && errno == EAGAIN) return -EAGAIN;
#endif
    return real_open(path, flags, mode);
}
static inline int open_directory(const char *path)
    REPEAT(int, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
static inline int real_rename(const char *from, const char *to) REPEAT(int, rename(from, to))
static inline int real_unlink(const char *path) REPEAT(int, unlink(path))
static inline ssize_t real_sendfile(int to, int from, int64_t at, size_t n) {
    off_t position = at;
    REPEAT(ssize_t, sendfile(to, from, &position, n))
}

/* Not repeated: after EINTR Linux has closed the descriptor, and it may be another's by now. */
static inline int real_close(int fd) { return close(fd) < 0 && errno != EINTR ? -errno : 0; }

static inline int64_t descriptors_max(void) {
    struct rlimit found;
    if (getrlimit(RLIMIT_NOFILE, &found) || found.rlim_cur == RLIM_INFINITY) return INT64_MAX;
    return (int64_t)found.rlim_cur;
}

static inline int real_fsync_directory(const char *path) {
    int fd = open_directory(path), r;
    if (fd < 0) return fd;
    do r = fsync(fd); while (r < 0 && errno == EINTR);
    r = r < 0 ? -errno : 0;
    close(fd);
    return r;
}

/* All that was written to the file system of `path`; -ENOSYS where the system cannot do it. */
static inline int real_sync_filesystem(const char *path) {
#ifdef __linux__
    int fd = open_directory(path), r;
    if (fd < 0) return fd;
    r = syncfs(fd) < 0 ? -errno : 0;
    close(fd);
    return r;
#else
    (void)path;
    return -ENOSYS;
#endif
}

/* cachestat(2) of Linux 6.5 counts the pages at once; before, a byte of every fourth page is asked
   for with RWF_NOWAIT. Where neither works the answer is yes: the reader then may wait for disk. */
static inline int real_is_cached(int fd, int64_t at, int64_t n) {
    const int64_t page = 4096, step = 4 * 4096;
    struct { uint64_t off, len; } range = {(uint64_t)at, (uint64_t)n};
    struct { uint64_t cached, dirty, writeback, evicted, recently_evicted; } found;
    char byte;
    if (n <= 0) return 1;
    if (syscall(451 /* cachestat */, fd, &range, &found, 0) == 0)
        return (int64_t)found.cached >= (at + n - 1) / page - at / page + 1;
#ifdef RWF_NOWAIT
    struct iovec part = {&byte, 1};
    for (int64_t p = at;; p = p + step < at + n - 1 ? p + step : at + n - 1) {
        if (preadv2(fd, &part, 1, p, RWF_NOWAIT) < 0 && errno != EOPNOTSUPP && errno != EINVAL
            && errno != ENOSYS) return 0;
        if (p == at + n - 1) return 1;
    }
#endif
    return 1;
}

/* Reads what is in the page cache: -EAGAIN where it would wait for the disk. Where a file system cannot
   say so, or a filter of system calls refuses preadv2, it reads as always. Without glibc's wrapper, which makes each call a point where a thread can end. */
static inline ssize_t real_pread_cached(int fd, void *into, size_t n, int64_t at) {
#ifdef RWF_NOWAIT
    struct iovec part = {into, n};
    ssize_t r = syscall(SYS_preadv2, fd, &part, 1, (long)at, 0L, RWF_NOWAIT);
    if (r >= 0) return r;
    if (errno == EAGAIN) return -EAGAIN;
#endif
    return real_pread(fd, into, n, at);
}

static inline int64_t real_wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline int64_t real_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void kill_self(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

static inline void sleep_ms(int64_t ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR) {}
}

/* The path behind a descriptor, cut to size; only fault rules ask for it. */
static inline void path_of_descriptor(int fd, char *into, size_t size) {
    char link[40];
    ssize_t n;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, into, size - 1);
    into[n < 0 ? 0 : n] = 0;
}
#endif
