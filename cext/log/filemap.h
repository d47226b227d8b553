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

/* Returns the end of the file's last written extent: behind it there are only zeros. Returns `size`
   when
   the file system does not know. After a crash an index has 10 MB, of which a page or two is used.
   */
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

/* Advises the kernel not to read ahead; systems without this advice read ahead. */
static inline void file_read_without_ahead(int fd) {
#ifdef POSIX_FADV_RANDOM
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#else
    (void)fd;
#endif
}

/* Advises the kernel to read ahead: the next bytes are read while the last ones are processed. */
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

/* Returns whether the file has more names than one (hard links); -errno. */
static inline int file_has_other_names(int fd) {
    struct stat s;
    return fstat(fd, &s) < 0 ? -errno : s.st_nlink > 1;
}

static inline int file_copy_modified(int source, int target) {
    struct stat s;
    if (fstat(source, &s) < 0) return -errno;
    struct timespec times[2] = {s.st_atim, s.st_mtim};
    return futimens(target, times) < 0 ? -errno : 0;
}

/* Makes the descriptor `target` refer to the open file of `source`. */
static inline int file_take_over(int target, int source) {
    return dup3(source, target, O_CLOEXEC) < 0 ? -errno : 0;
}

static inline uint8_t *map_file(int fd, int64_t size, int writable) {
    void *p = mmap(0, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? 0 : (uint8_t *)p;
}

/* For large buffers: advises the kernel to use huge pages, so that one page fault maps 2 MiB. The
   advice
   covers the first and last page whole, so that the kernel merges neighbouring areas with the same
   advice, and a huge page may cover parts of both. */
static inline void memory_wants_huge_pages(void *p, int64_t size) {
#ifdef MADV_HUGEPAGE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)p & ~(page - 1), to = ((uintptr_t)p + size + page - 1) & ~(page - 1);
    (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
    (void)p, (void)size;
#endif
}

/* Allows the kernel to take the whole pages of a piece of memory whose content is not needed any
   more.
   Until the kernel needs them they stay, and filling them again costs no page fault. */
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
