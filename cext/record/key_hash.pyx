"""The hashes by which clients choose the partition of a key, for many keys at once.

    murmur2      32 bits, of the key's bytes: Kafka's own clients from 0.8.2 on
    java_hash    String.hashCode and Arrays.hashCode(byte[]): the producers of 0.7 and 0.8

Both read each byte once and allocate nothing.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef enum:
    SEED = 0x9747B28C
    MULTIPLIER = 0x5BD1E995


cdef uint32_t _murmur2(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t hashed = <uint32_t>SEED ^ <uint32_t>size
    cdef uint32_t word
    cdef Py_ssize_t left = size
    while left >= 4:
        word = p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
        word *= <uint32_t>MULTIPLIER
        word = (word ^ (word >> 24)) * <uint32_t>MULTIPLIER
        hashed = (hashed * <uint32_t>MULTIPLIER) ^ word
        p += 4
        left -= 4
    if left > 0:
        if left == 3:
            hashed ^= <uint32_t>p[2] << 16
        if left >= 2:
            hashed ^= <uint32_t>p[1] << 8
        hashed = (hashed ^ p[0]) * <uint32_t>MULTIPLIER
    hashed = (hashed ^ (hashed >> 13)) * <uint32_t>MULTIPLIER
    return hashed ^ (hashed >> 15)


cdef int32_t _array_hash(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t hashed = 1
    cdef Py_ssize_t i
    for i in range(size):
        hashed = 31 * hashed + <uint32_t><int32_t>(<signed char>p[i])
    return <int32_t>hashed


cdef int32_t _string_hash(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Returns String.hashCode of a text in UTF-16, low byte first."""
    cdef uint32_t hashed = 0
    cdef Py_ssize_t i
    for i in range(0, size - 1, 2):
        hashed = 31 * hashed + (p[i] | <uint32_t>p[i + 1] << 8)
    return <int32_t>hashed


def murmur2(bytes data not None) -> int:
    """Returns the murmur2 hash of the bytes, an unsigned number of 32 bits. Kafka: Utils.murmur2."""
    return _murmur2(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def murmur2_partitions(keys, int partition_count) -> list[int]:
    """Returns the partition of each key, as Kafka's own clients choose it
    (BuiltInPartitioner.partitionForKey). Raises ValueError for a partition_count below 1, TypeError
    for a key that is not bytes."""
    cdef list found = []
    cdef bytes key
    if partition_count <= 0:
        raise ValueError(f"{partition_count} partitions")
    for item in keys:
        key = item
        if key is None:
            raise TypeError("a key is bytes, not None")
        found.append(
            (_murmur2(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF)
            % <uint32_t>partition_count
        )
    return found


def java_hash(data not None) -> int:
    """Returns a signed number of 32 bits: for a str Java's String.hashCode, for bytes
    Arrays.hashCode(byte[]). Raises TypeError for another object."""
    cdef bytes room
    if isinstance(data, bytes):
        room = data
        return _array_hash(<const uint8_t*>PyBytes_AS_STRING(room), PyBytes_GET_SIZE(room))
    if not isinstance(data, str):
        raise TypeError(f"java_hash takes str or bytes, not {type(data).__name__}")
    room = data.encode("utf-16-le", "surrogatepass")
    return _string_hash(<const uint8_t*>PyBytes_AS_STRING(room), PyBytes_GET_SIZE(room))
