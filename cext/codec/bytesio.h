/* Loads and stores at any alignment, big-endian but for one; compilers turn each into one
   instruction. */
#ifndef BARNABAS_BYTESIO_H
#define BARNABAS_BYTESIO_H
#include <stdint.h>
#include <string.h>

static inline uint16_t be16_load(const void *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
static inline uint32_t be32_load(const void *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline uint64_t be64_load(const void *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
static inline uint64_t le64_load(const void *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline void be16_store(void *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
static inline void be32_store(void *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
static inline void be64_store(void *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "barnabas supports little-endian machines only"
#endif
#endif
