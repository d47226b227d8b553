/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012): a keyed hash. Without the
 * key a client cannot choose two record keys with the same hash. */
#ifndef BARNABAS_SIPHASH_H
#define BARNABAS_SIPHASH_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t low, high;
} hash128;

static inline uint64_t sip_le64(const uint8_t* p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

#define SIP_TURN(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))
#define SIP_ROUND(v)                                              \
    do {                                                          \
        v[0] += v[1], v[1] = SIP_TURN(v[1], 13), v[1] ^= v[0];    \
        v[0] = SIP_TURN(v[0], 32);                                \
        v[2] += v[3], v[3] = SIP_TURN(v[3], 16), v[3] ^= v[2];    \
        v[0] += v[3], v[3] = SIP_TURN(v[3], 21), v[3] ^= v[0];    \
        v[2] += v[1], v[1] = SIP_TURN(v[1], 17), v[1] ^= v[2];    \
        v[2] = SIP_TURN(v[2], 32);                                \
    } while (0)

static inline hash128 siphash128(const uint8_t key[16], const uint8_t* p, int64_t n) {
    uint64_t k0 = sip_le64(key), k1 = sip_le64(key + 8), last = (uint64_t)n << 56;
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ 0xee,
                     k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
    hash128 out;
    int64_t left = n & 7;
    for (const uint8_t* end = p + (n - left); p != end; p += 8) {
        uint64_t m = sip_le64(p);
        v[3] ^= m;
        SIP_ROUND(v);
        SIP_ROUND(v);
        v[0] ^= m;
    }
    for (int64_t i = 0; i < left; i++) last |= (uint64_t)p[i] << (8 * i);
    v[3] ^= last;
    SIP_ROUND(v);
    SIP_ROUND(v);
    v[0] ^= last;
    v[2] ^= 0xee;
    for (int i = 0; i < 4; i++) SIP_ROUND(v);
    out.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int i = 0; i < 4; i++) SIP_ROUND(v);
    out.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return out;
}

#endif
