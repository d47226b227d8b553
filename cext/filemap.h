/* Sizes of files and memory maps of indexes; -errno on failure. */
#ifndef BARNABAS_FILEMAP_H
#define BARNABAS_FILEMAP_H
#include <errno.h>
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

static inline int64_t file_modified_ms(int fd) {
    struct stat s;
    return fstat(fd, &s) < 0 ? -errno : (int64_t)s.st_mtim.tv_sec * 1000 + s.st_mtim.tv_nsec / 1000000;
}

static inline uint8_t *map_file(int fd, int64_t size, int writable) {
    void *p = mmap(0, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? 0 : (uint8_t *)p;
}

static inline void unmap_file(uint8_t *p, int64_t size) { munmap(p, size); }
#endif
