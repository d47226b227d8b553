"""Atomic integers and pointers for values that several threads share without a lock.

load acquires, store releases; add and cas are sequentially consistent; peek and poke order nothing
and are for fields under a version lock, between its fences.
"""
from libc.stdint cimport int32_t, int64_t

cdef extern from "atomics.h" nogil:
    int32_t atomic_load_i32(const int32_t* p)
    int32_t atomic_peek_i32(const int32_t* p)
    void atomic_store_i32(int32_t* p, int32_t v)
    void atomic_poke_i32(int32_t* p, int32_t v)
    int32_t atomic_add_i32(int32_t* p, int32_t v)       # the value after the addition
    bint atomic_cas_i32(int32_t* p, int32_t expected, int32_t desired)
    int64_t atomic_load_i64(const int64_t* p)
    int64_t atomic_peek_i64(const int64_t* p)
    void atomic_store_i64(int64_t* p, int64_t v)
    void atomic_poke_i64(int64_t* p, int64_t v)
    int64_t atomic_add_i64(int64_t* p, int64_t v)       # the value after the addition
    bint atomic_cas_i64(int64_t* p, int64_t expected, int64_t desired)
    void* atomic_load_pointer(void** p)
    void atomic_store_pointer(void** p, void* v)
    void atomic_fence_acquire()
    void atomic_fence_release()
    void atomic_fence()
