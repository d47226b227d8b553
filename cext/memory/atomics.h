/* Atomic loads, stores and arithmetic, and the two fences that a version lock needs. */
#ifndef BARNABAS_ATOMICS_H
#define BARNABAS_ATOMICS_H
#include <stdint.h>

#define BARNABAS_ATOMICS(bits)                                                                    \
static inline int##bits##_t atomic_load_i##bits(const int##bits##_t *p) {                         \
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);                                                  \
}                                                                                                 \
static inline int##bits##_t atomic_peek_i##bits(const int##bits##_t *p) {                         \
    return __atomic_load_n(p, __ATOMIC_RELAXED);                                                  \
}                                                                                                 \
static inline void atomic_store_i##bits(int##bits##_t *p, int##bits##_t v) {                      \
    __atomic_store_n(p, v, __ATOMIC_RELEASE);                                                     \
}                                                                                                 \
static inline void atomic_poke_i##bits(int##bits##_t *p, int##bits##_t v) {                       \
    __atomic_store_n(p, v, __ATOMIC_RELAXED);                                                     \
}                                                                                                 \
/* The value after the addition. */                                                               \
static inline int##bits##_t atomic_add_i##bits(int##bits##_t *p, int##bits##_t v) {               \
    return __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST);                                            \
}                                                                                                 \
/* 1 when *p was `expected` and is `desired` now. */                                              \
static inline int atomic_cas_i##bits(int##bits##_t *p, int##bits##_t expected,                    \
                                     int##bits##_t desired) {                                     \
    return __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_ACQUIRE);                                         \
}

BARNABAS_ATOMICS(32)
BARNABAS_ATOMICS(64)

static inline void *atomic_load_pointer(void *const *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline void atomic_store_pointer(void **p, void *v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static inline void atomic_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
static inline void atomic_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
static inline void atomic_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif
