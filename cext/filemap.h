/* Sizes of files and memory maps of indexes; -errno on failure. */
#ifndef BARNABAS_FILEMAP_H
#define BARNABAS_FILEMAP_H
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

static inline int64_t file_size(int fd) {
    struct stat s;
    return fstat(fd, &s) < 0 ? -errno : (int64_t)s.st_size;
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
