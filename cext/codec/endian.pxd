"""Big-endian loads and stores, Kafka's byte order on the wire and on disk, and a load of eight
bytes in the processor's order (little-endian)."""
from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef extern from "bytesio.h" nogil:
    uint16_t be16_load(const void* p)
    uint32_t be32_load(const void* p)
    uint64_t be64_load(const void* p)
    uint64_t le64_load(const void* p)
    void be16_store(void* p, uint16_t v)
    void be32_store(void* p, uint32_t v)
    void be64_store(void* p, uint64_t v)
