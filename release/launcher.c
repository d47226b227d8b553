/* The one-file executable: a statically linked program that holds the folder that PyInstaller made, as
 * a tar archive compressed with zstd, and runs the program in it.
 *
 *   CACHE/onefile/HASH/        the folder, unpacked at the first start of this build
 *   CACHE/onefile/tmp.XXXXXX/  one that is being unpacked; it gets its name when it is complete
 *
 * CACHE is $CACHE_DIRECTORY (systemd), for root /var/cache/barnabas, otherwise
 * $XDG_CACHE_HOME/barnabas or ~/.cache/barnabas: broker/config/data_directory.py has the same rule.
 * Nothing is written to /tmp, which may be mounted noexec. A program holds a lock on its folder
 * while it runs. Who unpacks a new build removes the folders of others that no program holds, and
 * tmp directories that a kill has left.
 *
 * Whoever can write to the folder runs code as this user: it must belong to the user and nobody else
 * may write to it.
 *
 * release/onefile defines PAYLOAD (the path of the archive), HASH (its checksum) and
 * GLIBC_MINOR (the folder needs glibc 2.GLIBC_MINOR). */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#define LOADER "/lib64/ld-linux-x86-64.so.2"
#define CONTAINER " Run barnabas in a container (docs/service.md)."
#define ELSEWHERE " Set CACHE_DIRECTORY to a directory where you may write and run programs."
#define UNPACKED_BYTES_MAX (1ull << 30)
#define UNPACKING_S_MAX 3600 /* an older tmp directory was left by a kill */
#define TRIES 5

__asm__(".section .rodata\n"
        ".balign 16\n"
        "payload: .incbin \"" PAYLOAD "\"\n"
        "payload_end: .byte 0\n"
        ".previous");
extern const char payload[], payload_end[];

static _Noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("barnabas: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static void join(char path[PATH_MAX], const char *folder, const char *name) {
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        fail("the path %s/%s is too long." ELSEWHERE, folder, name);
}

/* Makes a folder and those above it. */
static void make_folders(const char *path, mode_t mode) {
    char part[PATH_MAX];
    join(part, path, "");
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, mode) != 0 && errno != EEXIST)
            fail("cannot make %s: %s." ELSEWHERE, part, strerror(errno));
        *slash = '/';
    }
}

static void store_path(char store[PATH_MAX]) {
    char cache[PATH_MAX];
    const char *given = getenv("CACHE_DIRECTORY"), *home;
    if (given != NULL && given[0] == '/')
        snprintf(cache, sizeof cache, "%.*s", (int)strcspn(given, ":"), given);
    else if (geteuid() == 0)
        snprintf(cache, sizeof cache, "/var/cache/barnabas");
    else if ((given = getenv("XDG_CACHE_HOME")) != NULL && given[0] == '/')
        join(cache, given, "barnabas");
    else if ((home = getenv("HOME")) != NULL && home[0] == '/')
        join(cache, home, ".cache/barnabas");
    else
        fail("HOME is not set, so there is no place to unpack to." ELSEWHERE);
    join(store, cache, "onefile");
}

static void check_owner(const char *path) {
    struct stat found;
    if (lstat(path, &found) != 0)
        fail("cannot read %s: %s.", path, strerror(errno));
    if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)))
        fail("%s belongs to another user or can be written by others. Remove it, or run: chmod 700 %s",
             path, path);
}

/* Returns N of this system's glibc 2.N; -1 for a glibc older than 2.33, whose loader has no
 * --version. Fails when the system has no glibc. */
static int glibc_minor(void) {
    int ends[2], minor = -1, status;
    char text[512];
    if (access(LOADER, X_OK) != 0)
        fail("this system has no GNU C library (" LOADER ")." CONTAINER);
    if (pipe(ends) != 0)
        fail("pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        fail("fork: %s", strerror(errno));
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        execl(LOADER, LOADER, "--version", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *said = fdopen(ends[0], "r");
    if (said != NULL && fgets(text, sizeof text, said) != NULL) {
        const char *found = strstr(text, "version 2.");
        if (found != NULL)
            minor = atoi(found + strlen("version 2."));
    }
    if (said != NULL)
        fclose(said);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return minor;
}

/* The fields of a tar header (POSIX ustar). */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};

static void write_file(const char *path, mode_t mode, const char *data, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file < 0)
        fail("cannot write %s: %s." ELSEWHERE, path, strerror(errno));
    while (size > 0) {
        ssize_t written = write(file, data, size);
        if (written < 0 && errno != EINTR)
            fail("cannot write %s: %s." ELSEWHERE, path, strerror(errno));
        if (written > 0) {
            data += written;
            size -= (size_t)written;
        }
    }
    if (close(file) != 0)
        fail("cannot write %s: %s." ELSEWHERE, path, strerror(errno));
}

static void unpack(const char *folder) {
    size_t packed = (size_t)(payload_end - payload);
    unsigned long long size = ZSTD_getFrameContentSize(payload, packed);
    if (size > UNPACKED_BYTES_MAX) /* also when the size is unknown or the frame damaged */
        fail("this file is damaged. Copy it again.");
    char *data = malloc(size);
    if (data == NULL)
        fail("no memory: unpacking takes %llu MiB.", size >> 20);
    if (ZSTD_decompress(data, size, payload, packed) != size)
        fail("this file is damaged. Copy it again.");
    size_t at = 0;
    while (at + sizeof(struct header) <= size && data[at] != 0) {
        struct header *row = (struct header *)(data + at);
        char name[sizeof row->prefix + sizeof row->name + 2], target[sizeof row->link + 1];
        char path[PATH_MAX];
        snprintf(name, sizeof name, "%.155s%s%.100s", row->prefix, row->prefix[0] ? "/" : "", row->name);
        snprintf(target, sizeof target, "%.100s", row->link);
        join(path, folder, name);
        size_t bytes = strtoul(row->size, NULL, 8);
        mode_t mode = (mode_t)strtoul(row->mode, NULL, 8);
        at += sizeof(struct header);
        if (bytes > size - at)
            fail("this file is damaged. Copy it again.");
        if (row->type == '5' ? mkdir(path, mode) != 0 : row->type == '2' && symlink(target, path) != 0)
            fail("cannot make %s: %s." ELSEWHERE, path, strerror(errno));
        if (row->type == '0')
            write_file(path, mode, data + at, bytes);
        at += (bytes + 511) / 512 * 512;
    }
    free(data);
}

static char work[PATH_MAX]; /* the folder that is being unpacked, or empty */

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *place) {
    (void)found, (void)kind, (void)place;
    return remove(path);
}

static void remove_work(void) {
    if (work[0] != 0)
        nftw(work, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void unpack_once(const char *store, const char *place) {
    int minor = glibc_minor();
    if (minor < GLIBC_MINOR && minor >= 0)
        fail("this system has glibc 2.%d, and this file needs 2.%d or newer." CONTAINER, minor,
             GLIBC_MINOR);
    if (minor < GLIBC_MINOR)
        fail("this system's glibc is older than 2.33, and this file needs 2.%d or newer." CONTAINER,
             GLIBC_MINOR);
    join(work, store, "tmp.XXXXXX");
    if (mkdtemp(work) == NULL) {
        work[0] = 0;
        fail("cannot write to %s: %s." ELSEWHERE, store, strerror(errno));
    }
    atexit(remove_work);
    umask(022);
    unpack(work);
    if (rename(work, place) == 0)
        work[0] = 0;
    else if (errno != ENOTEMPTY && errno != EEXIST) /* else another process was faster */
        fail("cannot make %s: %s.", place, strerror(errno));
    remove_work();
}

/* Removes what former builds have left. A folder that cannot be removed stays. */
static void remove_others(const char *store) {
    DIR *rows = opendir(store);
    for (struct dirent *row; rows != NULL && (row = readdir(rows)) != NULL;) {
        char path[PATH_MAX];
        struct stat found;
        if (row->d_name[0] == '.' || strcmp(row->d_name, HASH) == 0)
            continue;
        join(path, store, row->d_name);
        int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder < 0)
            continue;
        int is_young = strncmp(row->d_name, "tmp.", 4) == 0 &&
                       (fstat(folder, &found) != 0 || found.st_mtime > time(NULL) - UNPACKING_S_MAX);
        if (!is_young && flock(folder, LOCK_EX | LOCK_NB) == 0)
            nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        close(folder);
    }
    if (rows != NULL)
        closedir(rows);
}

/* Locks the folder until this program ends; execv keeps the descriptor. Returns whether the folder is
 * still the one of this name. */
static int hold(const char *place) {
    struct stat held, named;
    int folder = open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (folder < 0)
        return access(place, F_OK) == 0; /* check_owner says what is wrong with it */
    if (flock(folder, LOCK_SH) != 0)
        fail("cannot lock %s: %s." ELSEWHERE, place, strerror(errno));
    if (fstat(folder, &held) == 0 && stat(place, &named) == 0 && held.st_ino == named.st_ino)
        return 1;
    close(folder);
    return 0;
}

int main(int count, char **arguments) {
    char store[PATH_MAX], place[PATH_MAX], program[PATH_MAX];
    (void)count;
    store_path(store);
    join(place, store, HASH);
    for (int tries = 0; !hold(place) && tries < TRIES; tries++) {
        mode_t before = umask(077);
        make_folders(store, 0755);
        check_owner(store);
        unpack_once(store, place);
        umask(before);
        remove_others(store);
    }
    check_owner(store);
    check_owner(place);
    join(program, place, "barnabas");
    arguments[0] = program;
    if (access("/proc/self/exe", F_OK) != 0) { /* then the loader of glibc knows no $ORIGIN */
        char libraries[PATH_MAX];
        join(libraries, place, "_internal");
        setenv("LD_LIBRARY_PATH", libraries, 1);
    }
    execv(program, arguments);
    if (errno == EACCES)
        fail("no program may run in %s: its file system is mounted noexec." ELSEWHERE, place);
    fail("cannot run %s: %s.", program, strerror(errno));
}
