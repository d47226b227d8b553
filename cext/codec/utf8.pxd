"""Checks that text from clients is valid UTF-8 (RFC 3629), because Python decodes it later."""
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef inline int32_t _utf8_more(uint8_t first, uint8_t second) noexcept nogil:
    """Returns how many bytes follow the first byte of a character that is not ASCII, from its first
    two bytes; 0: they begin no valid character."""
    if not 0x80 <= second < 0xC0:
        return 0
    if first < 0xE0:
        return 1 if first >= 0xC2 else 0
    if first < 0xF0:                    # neither overlong nor a surrogate
        return 0 if (first == 0xE0 and second < 0xA0) or (first == 0xED and second >= 0xA0) else 2
    return 0 if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second >= 0x90) or (
        first > 0xF4) else 3

cdef inline int32_t _ascii_words(const uint8_t* p, int32_t n) noexcept nogil:
    """Returns how many bytes at the beginning are ASCII, counted in whole words of 8 bytes."""
    cdef uint64_t word
    cdef int32_t i = 0
    while i + 8 <= n:
        memcpy(&word, p + i, 8)
        if word & 0x8080808080808080u:
            break
        i += 8
    return i

cdef inline bint utf8_is_valid(const uint8_t* p, int32_t n) noexcept nogil:
    cdef int32_t i = _ascii_words(p, n), more
    while i < n:
        if p[i] < 0x80:
            i += 1
            continue
        more = _utf8_more(p[i], p[i + 1]) if i + 1 < n else 0
        if more == 0 or i + more >= n:
            return False
        i += 1
        while more > 0:
            if p[i] & 0xC0 != 0x80:
                return False
            i += 1
            more -= 1
    return True
