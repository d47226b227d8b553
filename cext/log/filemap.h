/* Sizes of files and memory maps of indexes; -errno on failure. */
#ifndef BARNABAS_FILEMAP_H
#define BARNABAS_FILEMAP_H
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int64_t file_size(int fd) {
    struct stat s;
    return fstat(fd, &s) < 0 ? -errno : (int64_t)s.st_size;
}

/* Where the last written extent of a file ends: behind it there are only zeros. `size` when the
   file system cannot tell. An index of a crashed broker is 10 MB of which a page or two is used. */
static inline int64_t file_data_end(int fd, int64_t size) {
    int64_t end = 0;
#if defined(SEEK_DATA) && defined(SEEK_HOLE)
    while (end < size) {
        off_t data = lseek(fd, end, SEEK_DATA);
        if (data < 0) return errno == ENXIO ? end : size;
        off_t hole = lseek(fd, data, SEEK_HOLE);
        if (hole <= data) return size;
        end = hole;
    }
#endif
    return size;
}

/* A wish; where the system knows no such thing the pages come and stay. */
static inline void file_read_without_ahead(int fd) {
#ifdef POSIX_FADV_RANDOM
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#else
    (void)fd;
#endif
}

/* From its beginning to its end: what comes next is read while what came is worked on. */
static inline void file_read_ahead(int fd) {
#ifdef POSIX_FADV_SEQUENTIAL
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#else
    (void)fd;
#endif
}

static inline void file_drop_pages(int fd, int64_t position, int64_t size) {
#ifdef POSIX_FADV_DONTNEED
    (void)posix_fadvise(fd, position, size, POSIX_FADV_DONTNEED);
#else
    (void)fd, (void)position, (void)size;
#endif
}

static inline int64_t file_modified_ms(int fd) {
    struct stat s;
    return fstat(fd, &s) < 0 ? -errno : (int64_t)s.st_mtim.tv_sec * 1000 + s.st_mtim.tv_nsec / 1000000;
}

static inline uint8_t *map_file(int fd, int64_t size, int writable) {
    void *p = mmap(0, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? 0 : (uint8_t *)p;
}

/* For large buffers: a fault gives 2 MiB then, where the system knows such pages. The wish covers
   the first and last page whole, so that neighbours that wish the same become one area, and a page
   may reach from one into the other. */
static inline void memory_wants_huge_pages(void *p, int64_t size) {
#ifdef MADV_HUGEPAGE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)p & ~(page - 1), to = ((uintptr_t)p + size + page - 1) & ~(page - 1);
    (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
    (void)p, (void)size;
#endif
}

/* The whole pages of a piece whose content is not needed any more: they stay, and cost nothing to
   fill again, unless the system needs them meanwhile. */
static inline void memory_may_be_taken(void *p, int64_t size) {
#ifdef MADV_FREE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) & ~(page - 1), to = ((uintptr_t)p + size) & ~(page - 1);
    if (to > from) (void)madvise((void *)from, to - from, MADV_FREE);
#else
    (void)p, (void)size;
#endif
}

static inline void unmap_file(uint8_t *p, int64_t size) { munmap(p, size); }
#endif
