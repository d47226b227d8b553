/* LD_PRELOAD: writes each call that changes a file below RECORDED_FOLDER to the file RECORDED_CALLS,
   in the order in which the calls were made: one call at a time, and its record behind it. A call
   that sends something over a socket has a record before it. recorder_mark() adds text of the test.
   Without RECORDED_CALLS the records stay in memory, and the process takes them: recorder_kept(),
   recorder_forget(). recorder_limit() says how many more calls are recorded, and recorder_fail()
   lets calls below a directory fail with EIO, as long as calls are recorded.
   tests/durability/recording.py reads the records. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, RMDIR, SYNC_ALL, SEND, MARK,
       FAILED, EVICT };

struct header {
    uint32_t call, path_bytes, target_bytes, data_bytes;
    uint64_t inode;
    int64_t position;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;
static size_t folder_bytes;
static int out = -1; /* -1: the records stay in memory */
static int is_on;
static long left = -1; /* calls that are recorded yet; -1: all */
static int is_paused;
static char *kept;
static size_t kept_bytes, kept_space;

static char failing[PATH_MAX]; /* below which calls fail */
static size_t failing_bytes;
static unsigned failing_calls; /* 1 << CREATE for opening, 1 << WRITE, ... */
static long failing_after, failing_count; /* so many calls work, and so many fail; -1: all */

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real && !(real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))) abort()

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("RECORDED_CALLS");
    folder = getenv("RECORDED_FOLDER");
    if (!folder) abort();
    folder_bytes = strlen(folder);
    is_on = 1;
    if (!path) return;
    REAL(int, "open", const char *, int, ...);
    out = real(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0) abort();
}

static void record(uint32_t call, const char *path, const char *target, const void *data,
                   size_t data_bytes, uint64_t inode, int64_t position)
{
    struct header header = {call, path ? strlen(path) : 0, target ? strlen(target) : 0,
                            data_bytes, inode, position};
    struct iovec parts[4] = {{&header, sizeof header}, {(void *)path, header.path_bytes},
                             {(void *)target, header.target_bytes}, {(void *)data, data_bytes}};
    size_t bytes = sizeof header + header.path_bytes + header.target_bytes + data_bytes;
    int before = errno;
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (left == 0) return;
    if (out < 0) {
        if (kept_bytes + bytes > kept_space
            && !(kept = realloc(kept, kept_space = 2 * (kept_bytes + bytes)))) abort();
        for (int i = 0; i < 4; kept_bytes += parts[i++].iov_len)
            if (parts[i].iov_len)
                memcpy(kept + kept_bytes, parts[i].iov_base, parts[i].iov_len);
    } else if (real(out, parts, 4) != (ssize_t)bytes) {
        abort();
    }
    if (left > 0 && call < SEND && --left == 0) is_on = 0;
    errno = before;
}

/* Records `calls` more calls, and then none; -1: all. */
void recorder_limit(long calls)
{
    pthread_mutex_lock(&lock);
    left = calls;
    is_on = calls != 0 && !is_paused;
    pthread_mutex_unlock(&lock);
}

/* Records nothing until it is called with 0. */
void recorder_pause(int pauses)
{
    pthread_mutex_lock(&lock);
    is_paused = pauses;
    is_on = left != 0 && !is_paused;
    pthread_mutex_unlock(&lock);
}

/* Lets `count` of the `calls` below `path` fail with EIO, after `after` that work. A count of 0 ends
   this, -1 lets all fail. Each has a record FAILED. */
void recorder_fail(const char *path, unsigned calls, long after, long count)
{
    pthread_mutex_lock(&lock);
    failing_bytes = strlen(path);
    snprintf(failing, sizeof failing, "%s", path);
    failing_calls = calls;
    failing_after = after;
    failing_count = count;
    pthread_mutex_unlock(&lock);
}

/* The caller holds the lock. */
static int fails(uint32_t call, const char *path, uint64_t inode)
{
    if (!failing_count || !(failing_calls >> call & 1) || strncmp(path, failing, failing_bytes)
        || (path[failing_bytes] && path[failing_bytes] != '/'))
        return 0;
    if (failing_after > 0) {
        failing_after--;
        return 0;
    }
    if (failing_count > 0) failing_count--;
    record(FAILED, path, NULL, &call, sizeof call, inode, 0);
    errno = EIO;
    return 1;
}

long recorder_left(void) { return left; }

const char *recorder_kept(size_t *bytes)
{
    *bytes = kept_bytes;
    return kept;
}

void recorder_forget(void) { kept_bytes = 0; }

void recorder_mark(const char *text, size_t bytes)
{
    pthread_mutex_lock(&lock);
    record(MARK, NULL, NULL, text, bytes, 0, 0);
    pthread_mutex_unlock(&lock);
}

static int is_recorded(const char *path)
{
    return is_on && !strncmp(path, folder, folder_bytes)
           && (path[folder_bytes] == '/' || !path[folder_bytes]);
}

/* The absolute path of `name` below the directory `at`; returns whether it is recorded. */
static int resolve(int at, const char *name, char *into)
{
    char link[40];
    ssize_t bytes;
    if (!is_on) return 0;
    if (name[0] == '/') {
        snprintf(into, PATH_MAX, "%s", name);
        return is_recorded(into);
    }
    if (at == AT_FDCWD) {
        if (!getcwd(into, PATH_MAX)) return 0;
        bytes = strlen(into);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        bytes = readlink(link, into, PATH_MAX - 1);
        if (bytes < 0) return 0;
    }
    snprintf(into + bytes, PATH_MAX - bytes, "/%s", name);
    return is_recorded(into);
}

/* The path and the inode of a descriptor; returns whether it is a recorded file or directory. */
static int described(int fd, char *path, struct stat *found)
{
    char link[40];
    ssize_t bytes;
    if (!is_on || fstat(fd, found) || !(S_ISREG(found->st_mode) || S_ISDIR(found->st_mode)))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    bytes = readlink(link, path, PATH_MAX - 1);
    path[bytes < 0 ? 0 : bytes] = 0;
    return is_recorded(path);
}

static int is_socket(int fd)
{
    struct stat found;
    return is_on && !fstat(fd, &found) && S_ISSOCK(found.st_mode);
}

static void record_send(int fd)
{
    if (!is_socket(fd)) return;
    pthread_mutex_lock(&lock);
    record(SEND, NULL, NULL, NULL, 0, 0, 0);
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------------------------ opening */

static int opened(int at, const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    struct stat found;
    int fd, recorded, made, changes;
    REAL(int, "openat", int, const char *, int, ...);
    changes = flags & (O_CREAT | O_TRUNC);
    recorded = (changes || failing_count) && resolve(at, name, path);
    if (!recorded) return real(at, name, flags, mode);
    pthread_mutex_lock(&lock);
    made = lstat(path, &found) != 0;
    fd = fails(CREATE, path, 0) ? -1 : real(at, name, flags, mode);
    if (changes && fd >= 0 && !fstat(fd, &found)) {
        if (made) record(CREATE, path, NULL, NULL, 0, found.st_ino, 0);
        else if (flags & O_TRUNC) record(TRUNCATE, path, NULL, NULL, 0, found.st_ino, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list given)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(given, mode_t) : 0;
}

#define OPEN(name, at, ...) \
    int name(__VA_ARGS__, int flags, ...) { \
        va_list given; \
        va_start(given, flags); \
        mode_t mode = mode_of(flags, given); \
        va_end(given); \
        return opened(at, path, flags, mode); \
    }

OPEN(open, AT_FDCWD, const char *path)
OPEN(open64, AT_FDCWD, const char *path)
OPEN(openat, at, int at, const char *path)
OPEN(openat64, at, int at, const char *path)

/* ------------------------------------------------------------------------------------ writing */

static void record_parts(const char *path, uint64_t inode, const struct iovec *parts, int count,
                         ssize_t bytes, int64_t position)
{
    for (int i = 0; i < count && bytes > 0; i++) {
        size_t n = (size_t)bytes < parts[i].iov_len ? (size_t)bytes : parts[i].iov_len;
        record(WRITE, path, NULL, parts[i].iov_base, n, inode, position);
        position += n;
        bytes -= n;
    }
}

static ssize_t written_at(int fd, const struct iovec *parts, int count, int64_t position)
{
    char path[PATH_MAX];
    struct stat found;
    ssize_t bytes;
    REAL(ssize_t, "pwritev64", int, const struct iovec *, int, int64_t);
    if (!described(fd, path, &found)) return real(fd, parts, count, position);
    pthread_mutex_lock(&lock);
    bytes = fails(WRITE, path, found.st_ino) ? -1 : real(fd, parts, count, position);
    record_parts(path, found.st_ino, parts, count, bytes, position);
    pthread_mutex_unlock(&lock);
    return bytes;
}

static ssize_t written(int fd, const struct iovec *parts, int count)
{
    char path[PATH_MAX];
    struct stat found;
    ssize_t bytes;
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (!described(fd, path, &found)) {
        record_send(fd);
        return real(fd, parts, count);
    }
    pthread_mutex_lock(&lock);
    bytes = fails(WRITE, path, found.st_ino) ? -1 : real(fd, parts, count);
    if (bytes > 0)
        record_parts(path, found.st_ino, parts, count, bytes, lseek(fd, 0, SEEK_CUR) - bytes);
    pthread_mutex_unlock(&lock);
    return bytes;
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    struct iovec part = {(void *)from, bytes};
    return written(fd, &part, 1);
}

ssize_t writev(int fd, const struct iovec *parts, int count) { return written(fd, parts, count); }

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t position)
{
    struct iovec part = {(void *)from, bytes};
    return written_at(fd, &part, 1, position);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t position)
{
    return pwrite(fd, from, bytes, position);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t position)
{
    return written_at(fd, parts, count, position);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t position)
{
    return written_at(fd, parts, count, position);
}

/* -------------------------------------------------------------------- other calls for one file */

#define OF_FILE(name, call, at_position, given, ...) \
    int name(int fd __VA_ARGS__) { \
        char path[PATH_MAX]; \
        struct stat found; \
        int status; \
        REAL(int, #name, int __VA_ARGS__); \
        if (!described(fd, path, &found)) return real given; \
        pthread_mutex_lock(&lock); \
        status = fails(call, path, found.st_ino) ? -1 : real given; \
        if (!status) record(call, path, NULL, NULL, 0, found.st_ino, at_position); \
        pthread_mutex_unlock(&lock); \
        return status; \
    }

OF_FILE(fsync, SYNC, 0, (fd))
OF_FILE(fdatasync, SYNC, 0, (fd))
OF_FILE(syncfs, SYNC_ALL, 0, (fd))
OF_FILE(ftruncate, TRUNCATE, bytes, (fd, bytes), , off_t bytes)
OF_FILE(ftruncate64, TRUNCATE, bytes, (fd, bytes), , off64_t bytes)

int posix_fadvise(int fd, off_t position, off_t bytes, int advice)
{
    char path[PATH_MAX];
    struct stat found;
    int status;
    REAL(int, "posix_fadvise", int, off_t, off_t, int);
    if (advice != POSIX_FADV_DONTNEED || !described(fd, path, &found))
        return real(fd, position, bytes, advice);
    pthread_mutex_lock(&lock);
    status = real(fd, position, bytes, advice);
    if (!status) record(EVICT, path, NULL, NULL, 0, found.st_ino, 0);
    pthread_mutex_unlock(&lock);
    return status;
}

int posix_fadvise64(int fd, off64_t position, off64_t bytes, int advice)
{
    return posix_fadvise(fd, position, bytes, advice);
}

/* --------------------------------------------------------------------------------------- names */

static int renamed(int at, const char *source, int to, const char *target, unsigned flags)
{
    char path[PATH_MAX], target_path[PATH_MAX];
    int status, recorded;
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    recorded = resolve(at, source, path) | resolve(to, target, target_path);
    if (!recorded) return real(at, source, to, target, flags);
    pthread_mutex_lock(&lock);
    status = fails(RENAME, path, 0) || fails(RENAME, target_path, 0)
                 ? -1 : real(at, source, to, target, flags);
    if (!status) record(RENAME, path, target_path, NULL, 0, 0, 0);
    pthread_mutex_unlock(&lock);
    return status;
}

int rename(const char *source, const char *target)
{
    return renamed(AT_FDCWD, source, AT_FDCWD, target, 0);
}

int renameat(int at, const char *source, int to, const char *target)
{
    return renamed(at, source, to, target, 0);
}

int renameat2(int at, const char *source, int to, const char *target, unsigned flags)
{
    return renamed(at, source, to, target, flags);
}

static int unlinked(int at, const char *name, int flags)
{
    char path[PATH_MAX];
    int status;
    REAL(int, "unlinkat", int, const char *, int);
    if (!resolve(at, name, path)) return real(at, name, flags);
    pthread_mutex_lock(&lock);
    status = fails(flags & AT_REMOVEDIR ? RMDIR : UNLINK, path, 0) ? -1 : real(at, name, flags);
    if (!status) record(flags & AT_REMOVEDIR ? RMDIR : UNLINK, path, NULL, NULL, 0, 0, 0);
    pthread_mutex_unlock(&lock);
    return status;
}

int unlink(const char *path) { return unlinked(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinked(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int at, const char *path, int flags) { return unlinked(at, path, flags); }

int mkdirat(int at, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    struct stat found;
    int status;
    REAL(int, "mkdirat", int, const char *, mode_t);
    if (!resolve(at, name, path)) return real(at, name, mode);
    pthread_mutex_lock(&lock);
    status = fails(MKDIR, path, 0) ? -1 : real(at, name, mode);
    if (!status && !lstat(path, &found)) record(MKDIR, path, NULL, NULL, 0, found.st_ino, 0);
    pthread_mutex_unlock(&lock);
    return status;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* ------------------------------------------------------------------------------------- sockets */

ssize_t send(int fd, const void *from, size_t bytes, int flags)
{
    REAL(ssize_t, "send", int, const void *, size_t, int);
    record_send(fd);
    return real(fd, from, bytes, flags);
}

ssize_t sendto(int fd, const void *from, size_t bytes, int flags, const struct sockaddr *to,
               socklen_t to_bytes)
{
    REAL(ssize_t, "sendto", int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    record_send(fd);
    return real(fd, from, bytes, flags, to, to_bytes);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(ssize_t, "sendmsg", int, const struct msghdr *, int);
    record_send(fd);
    return real(fd, message, flags);
}

ssize_t sendfile(int fd, int from, off_t *position, size_t bytes)
{
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t);
    record_send(fd);
    return real(fd, from, position, bytes);
}

ssize_t sendfile64(int fd, int from, off64_t *position, size_t bytes)
{
    return sendfile(fd, from, position, bytes);
}
