/* Cyclic redundancy checks: CRC-32C (record batches v2) and CRC-32/IEEE (message sets v0 and v1).
 *
 * Every function takes the checksum so far (0 to begin) and gives the checksum of all bytes up to
 * now, so pieces can be chained. Polynomials are bit-reflected, as both CRCs are defined.
 *
 * The tables and folding constants are computed by crc_setup(), which the one module that includes
 * this header runs while it is imported; afterwards nothing here is ever written again.
 *
 * Each processor-specific function carries its own target attribute, so the module as a whole is
 * compiled for the plain architecture and runs anywhere. Callers must have asked *_usable() first.
 */
#ifndef BARNABAS_CRC32C_H
#define BARNABAS_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bytesio.h"

#define CRC32C_POLYNOMIAL 0x82f63b78u
#define CRC32_POLYNOMIAL 0xedb88320u

typedef uint32_t (*crc_function)(uint32_t crc, const uint8_t* p, size_t n);

static uint32_t crc32c_table[8][256];
static uint32_t crc32_table[8][256];

/* table[k][b]: the checksum of byte b followed by k zero bytes, without the final inversion. */
static void crc_fill_table(uint32_t table[8][256], uint32_t polynomial) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t r = b;
        for (int bit = 0; bit < 8; bit++) r = (r >> 1) ^ ((r & 1) ? polynomial : 0);
        table[0][b] = r;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xff];
}

/* Slicing by eight: eight table look-ups that do not wait for each other, per eight bytes. */
static inline uint32_t crc_sliced(uint32_t table[8][256], uint32_t crc, const uint8_t* p, size_t n) {
    crc = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v = le64_load(p) ^ crc;
        crc = table[7][v & 0xff] ^ table[6][(v >> 8) & 0xff] ^ table[5][(v >> 16) & 0xff] ^
              table[4][(v >> 24) & 0xff] ^ table[3][(v >> 32) & 0xff] ^ table[2][(v >> 40) & 0xff] ^
              table[1][(v >> 48) & 0xff] ^ table[0][v >> 56];
    }
    for (; n; p++, n--) crc = (crc >> 8) ^ table[0][(crc ^ *p) & 0xff];
    return ~crc;
}

static uint32_t crc32c_sliced(uint32_t crc, const uint8_t* p, size_t n) {
    return crc_sliced(crc32c_table, crc, p, n);
}

static uint32_t crc32_sliced(uint32_t crc, const uint8_t* p, size_t n) {
    return crc_sliced(crc32_table, crc, p, n);
}

/* ------------------------------------------------------------------------------------ x86-64 */
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* Three streams hide the three cycles of the crc32 instruction. They are joined by carry-less
 * multiplication: crc32_u64(0, clmul(a, k)) is a * k * x^33, so k = x^(8 * bytes - 33) moves the
 * checksum a over that many zero bytes. */
#define CRC_LANE_LONG 2048
#define CRC_LANE_SHORT 128
static uint64_t crc_over_long, crc_over_two_long, crc_over_short, crc_over_two_short;

/* 128-bit lanes: {x^(d+31), x^(d-33)} moves a lane over d bits. */
static uint64_t crc_fold_2048[2], crc_fold_1024[2], crc_fold_512[2], crc_fold_256[2];
static uint64_t crc_fold_128[2];

/* Without 512-bit registers neither unit of the processor is enough, so both work at once: a block
 * has bytes that are folded and, behind them, three streams for the crc32 instruction. */
#define CRC_BLOCK_STEPS 16
#define CRC_BLOCK_FOLDED (CRC_BLOCK_STEPS * 128)
#define CRC_BLOCK_LANE (CRC_BLOCK_STEPS * 32)
#define CRC_BLOCK (CRC_BLOCK_FOLDED + 3 * CRC_BLOCK_LANE)
static uint64_t crc_over_block[3]; /* one lane, two, three */

/* x^n modulo the polynomial; x^0 is the top bit. */
static uint32_t crc32c_power(long n) {
    uint32_t r = 0x80000000u;
    for (long i = 0; i < n; i++) r = (r >> 1) ^ ((r & 1) ? CRC32C_POLYNOMIAL : 0);
    return r;
}

static void crc_setup_fold(uint64_t over[2], long bits) {
    over[0] = crc32c_power(bits + 31);
    over[1] = crc32c_power(bits - 33);
}

static void crc_setup_x86(void) {
    crc_over_long = crc32c_power(8L * CRC_LANE_LONG - 33);
    crc_over_two_long = crc32c_power(16L * CRC_LANE_LONG - 33);
    crc_over_short = crc32c_power(8L * CRC_LANE_SHORT - 33);
    crc_over_two_short = crc32c_power(16L * CRC_LANE_SHORT - 33);
    for (int i = 0; i < 3; i++)
        crc_over_block[i] = crc32c_power(8L * (i + 1) * CRC_BLOCK_LANE - 33);
    crc_setup_fold(crc_fold_2048, 2048);
    crc_setup_fold(crc_fold_1024, 1024);
    crc_setup_fold(crc_fold_512, 512);
    crc_setup_fold(crc_fold_256, 256);
    crc_setup_fold(crc_fold_128, 128);
}

/* zig tells clang each feature that the oldest processor lacks: then sse4.2 does not bring crc32,
 * nor, with clang 18 to 21, avx512f the wide registers. */
#if defined(__clang_major__) && __clang_major__ >= 14
#define CRC_OF_SSE42 "sse4.2,crc32,pclmul"
#else
#define CRC_OF_SSE42 "sse4.2,pclmul"
#endif
#if defined(__clang_major__) && __clang_major__ >= 18 && __clang_major__ <= 21
#define CRC_OF_AVX512 "avx512f,evex512,avx512vl,avx512bw,avx512dq,vpclmulqdq,"
#else
#define CRC_OF_AVX512 "avx512f,avx512vl,avx512bw,avx512dq,vpclmulqdq,"
#endif
#define CRC_SSE42 __attribute__((target(CRC_OF_SSE42)))
#define CRC_AVX2 __attribute__((target("avx2,vpclmulqdq," CRC_OF_SSE42)))
#define CRC_AVX512 __attribute__((target(CRC_OF_AVX512 CRC_OF_SSE42)))

/* __builtin_cpu_supports needs a library that zig does not link. An instruction is usable when the
 * processor has it and the system keeps its registers (the bits of XCR0). */
typedef struct {
    unsigned features, of_7_b, of_7_c, kept;
} crc_cpu;

#define CRC_HAS(word, bit) (((word) >> (bit)) & 1u)

static crc_cpu crc_read_cpu(void) {
    crc_cpu cpu = {0, 0, 0, 0};
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) cpu.features = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) cpu.of_7_b = b, cpu.of_7_c = c;
    if (CRC_HAS(cpu.features, 27)) /* OSXSAVE: xgetbv is there */
        __asm__("xgetbv" : "=a"(cpu.kept), "=d"(d) : "c"(0));
    return cpu;
}

static int crc32c_sse42_usable(void) {
    crc_cpu cpu = crc_read_cpu();
    return CRC_HAS(cpu.features, 20) && CRC_HAS(cpu.features, 1); /* sse4.2, pclmul */
}

static int crc32c_avx2_usable(void) {
    crc_cpu cpu = crc_read_cpu();
    return crc32c_sse42_usable() && (cpu.kept & 0x06) == 0x06 && /* xmm, ymm */
           CRC_HAS(cpu.of_7_b, 5) && CRC_HAS(cpu.of_7_c, 10);    /* avx2, vpclmulqdq */
}

static int crc32c_avx512_usable(void) {
    crc_cpu cpu = crc_read_cpu();
    return crc32c_sse42_usable() && (cpu.kept & 0xe6) == 0xe6 && /* and all of zmm */
           CRC_HAS(cpu.of_7_b, 16) && CRC_HAS(cpu.of_7_b, 17) && /* avx512f, avx512dq */
           CRC_HAS(cpu.of_7_b, 30) && CRC_HAS(cpu.of_7_b, 31) && /* avx512bw, avx512vl */
           CRC_HAS(cpu.of_7_c, 10);
}

/* The bytes that are left after the wide loops; takes and gives the inverted register. */
CRC_SSE42 static inline uint32_t crc_tail_sse42(uint32_t c, const uint8_t* p, size_t n) {
    uint64_t wide = c;
    for (; n >= 8; p += 8, n -= 8) wide = _mm_crc32_u64(wide, le64_load(p));
    c = (uint32_t)wide;
    if (n & 4) {
        uint32_t v;
        memcpy(&v, p, 4);
        c = _mm_crc32_u32(c, v);
        p += 4;
    }
    if (n & 2) {
        uint16_t v;
        memcpy(&v, p, 2);
        c = _mm_crc32_u16(c, v);
        p += 2;
    }
    if (n & 1) c = _mm_crc32_u8(c, *p);
    return c;
}

CRC_SSE42 static inline uint64_t crc_move(uint64_t crc, uint64_t over) {
    __m128i product = _mm_clmulepi64_si128(
        _mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128((long long)over), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

CRC_SSE42 static inline uint64_t crc_three(
    uint64_t c, const uint8_t* p, size_t lane, uint64_t over, uint64_t over_two) {
    uint64_t c1 = 0, c2 = 0;
    for (size_t i = 0; i < lane; i += 8) {
        c = _mm_crc32_u64(c, le64_load(p + i));
        c1 = _mm_crc32_u64(c1, le64_load(p + lane + i));
        c2 = _mm_crc32_u64(c2, le64_load(p + 2 * lane + i));
    }
    return _mm_crc32_u64(0, crc_move(c, over_two) ^ crc_move(c1, over)) ^ c2;
}

CRC_SSE42 static uint32_t crc32c_sse42(uint32_t crc, const uint8_t* p, size_t n) {
    uint64_t c = (uint32_t)~crc;
    for (; n >= 3 * CRC_LANE_LONG; p += 3 * CRC_LANE_LONG, n -= 3 * CRC_LANE_LONG)
        c = crc_three(c, p, CRC_LANE_LONG, crc_over_long, crc_over_two_long);
    for (; n >= 3 * CRC_LANE_SHORT; p += 3 * CRC_LANE_SHORT, n -= 3 * CRC_LANE_SHORT)
        c = crc_three(c, p, CRC_LANE_SHORT, crc_over_short, crc_over_two_short);
    return ~crc_tail_sse42((uint32_t)c, p, n);
}

CRC_AVX2 static inline __m256i crc_load_256(const uint8_t* p) {
    return _mm256_loadu_si256((const __m256i*)p);
}

CRC_AVX2 static inline __m256i crc_fold_half_by(const uint64_t over[2]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)over));
}

CRC_AVX2 static inline __m256i crc_fold_half(__m256i lane, __m256i over, __m256i next) {
    __m256i low = _mm256_clmulepi64_epi128(lane, over, 0x00);
    __m256i high = _mm256_clmulepi64_epi128(lane, over, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, next), high);
}

/* One block; takes and gives the inverted register. */
CRC_AVX2 static uint64_t crc_block_avx2(uint64_t crc, const uint8_t* p) {
    const uint8_t* q = p + CRC_BLOCK_FOLDED;
    uint64_t c0 = 0, c1 = 0, c2 = 0;
    __m256i over = crc_fold_half_by(crc_fold_1024);
    __m256i a = crc_load_256(p), b = crc_load_256(p + 32);
    __m256i c = crc_load_256(p + 64), d = crc_load_256(p + 96);
    a = _mm256_xor_si256(a, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
    for (int step = 0;;) {
        for (int i = 0; i < 32; i += 8) {
            c0 = _mm_crc32_u64(c0, le64_load(q + i));
            c1 = _mm_crc32_u64(c1, le64_load(q + CRC_BLOCK_LANE + i));
            c2 = _mm_crc32_u64(c2, le64_load(q + 2 * CRC_BLOCK_LANE + i));
        }
        if (++step == CRC_BLOCK_STEPS) break;
        p += 128;
        q += 32;
        a = crc_fold_half(a, over, crc_load_256(p));
        b = crc_fold_half(b, over, crc_load_256(p + 32));
        c = crc_fold_half(c, over, crc_load_256(p + 64));
        d = crc_fold_half(d, over, crc_load_256(p + 96));
    }
    over = crc_fold_half_by(crc_fold_256);
    d = crc_fold_half(crc_fold_half(crc_fold_half(a, over, b), over, c), over, d);
    __m128i step = _mm_loadu_si128((const __m128i*)crc_fold_128);
    __m128i x = _mm256_castsi256_si128(d);
    __m128i y = _mm_xor_si128(
        _mm_clmulepi64_si128(x, step, 0x00), _mm_clmulepi64_si128(x, step, 0x11));
    x = _mm_xor_si128(y, _mm256_extracti128_si256(d, 1));
    uint64_t folded = _mm_crc32_u64(0, (uint64_t)_mm_extract_epi64(x, 0));
    folded = _mm_crc32_u64(folded, (uint64_t)_mm_extract_epi64(x, 1));
    folded = crc_move(folded, crc_over_block[2]) ^ crc_move(c0, crc_over_block[1]) ^
             crc_move(c1, crc_over_block[0]);
    return _mm_crc32_u64(0, folded) ^ c2;
}

CRC_AVX2 static uint32_t crc32c_avx2(uint32_t crc, const uint8_t* p, size_t n) {
    uint64_t c = (uint32_t)~crc;
    for (; n >= CRC_BLOCK; p += CRC_BLOCK, n -= CRC_BLOCK) c = crc_block_avx2(c, p);
    return crc32c_sse42(~(uint32_t)c, p, n);
}

CRC_AVX512 static inline __m512i crc_fold_wide(__m512i lane, __m512i over, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(lane, over, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lane, over, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* low ^ high ^ next */
}

CRC_AVX512 static inline __m128i crc_fold_narrow(__m128i lane, __m128i over, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, over, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, over, 0x11);
    return _mm_ternarylogic_epi64(low, high, next, 0x96);
}

CRC_AVX512 static inline __m512i crc_fold_by(const uint64_t over[2]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)over));
}

/* Four accumulators of 64 bytes each, then one, then 16 bytes, then the crc32 instruction. */
CRC_AVX512 static uint32_t crc32c_avx512(uint32_t crc, const uint8_t* p, size_t n) {
    if (n < 512) return crc32c_sse42(crc, p, n);
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
    __m512i c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    __m512i over = crc_fold_by(crc_fold_2048);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = crc_fold_wide(a, over, _mm512_loadu_si512(p));
        b = crc_fold_wide(b, over, _mm512_loadu_si512(p + 64));
        c = crc_fold_wide(c, over, _mm512_loadu_si512(p + 128));
        d = crc_fold_wide(d, over, _mm512_loadu_si512(p + 192));
    }
    over = crc_fold_by(crc_fold_512);
    d = crc_fold_wide(crc_fold_wide(crc_fold_wide(a, over, b), over, c), over, d);
    for (; n >= 64; p += 64, n -= 64) d = crc_fold_wide(d, over, _mm512_loadu_si512(p));
    __m128i step = _mm_loadu_si128((const __m128i*)crc_fold_128);
    __m128i x = _mm512_extracti32x4_epi32(d, 0);
    x = crc_fold_narrow(x, step, _mm512_extracti32x4_epi32(d, 1));
    x = crc_fold_narrow(x, step, _mm512_extracti32x4_epi32(d, 2));
    x = crc_fold_narrow(x, step, _mm512_extracti32x4_epi32(d, 3));
    uint64_t r = _mm_crc32_u64(0, (uint64_t)_mm_extract_epi64(x, 0));
    r = _mm_crc32_u64(r, (uint64_t)_mm_extract_epi64(x, 1));
    return ~crc_tail_sse42((uint32_t)r, p, n);
}
#endif

/* ------------------------------------------------------------------------------------ aarch64 */
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

static int crc32c_arm_usable(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

/* The instructions are written out because arm_acle.h hides them unless the whole file is
 * compiled with +crc on some compilers. */
static uint32_t crc32c_arm(uint32_t crc, const uint8_t* p, size_t n) {
    uint32_t c = ~crc;
    for (; n >= 8; p += 8, n -= 8)
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(c) : "r"(le64_load(p)));
    for (; n; p++, n--)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(c) : "r"((uint32_t)*p));
    return ~c;
}
#endif

/* ---------------------------------------------------------------------------------- the choice */
#define CRC_IMPLEMENTATIONS_MAX 4

typedef struct {
    const char* name;
    crc_function run;
} crc_implementation;

/* Fills `found` with what this machine can run, the best first, and gives their number. */
static int crc_setup(crc_implementation found[CRC_IMPLEMENTATIONS_MAX]) {
    int count = 0;
    crc_fill_table(crc32c_table, CRC32C_POLYNOMIAL);
    crc_fill_table(crc32_table, CRC32_POLYNOMIAL);
#if defined(__x86_64__)
    crc_setup_x86();
    if (crc32c_avx512_usable()) found[count++] = (crc_implementation){"avx512", crc32c_avx512};
    if (crc32c_avx2_usable()) found[count++] = (crc_implementation){"avx2", crc32c_avx2};
    if (crc32c_sse42_usable()) found[count++] = (crc_implementation){"sse4.2", crc32c_sse42};
#endif
#if defined(__aarch64__) && defined(__linux__)
    if (crc32c_arm_usable()) found[count++] = (crc_implementation){"arm", crc32c_arm};
#endif
    found[count++] = (crc_implementation){"table", crc32c_sliced};
    return count;
}

#endif
