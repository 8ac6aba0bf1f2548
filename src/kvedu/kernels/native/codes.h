// Quantized keys and values in pages: what a side holds, and how 16 of its codes become numbers.
//
// The layout is that of kernels/codes.py, a page at a time: codes [page][unit][head][bytes], scales and zero points
// [page][unit][head][groups], channels set apart [page][unit][head][n]. A unit is a token where a group lies along
// the head, else the tokens of one group; its bytes hold the codes of dim elements, or of dim runs along the tokens.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kinds.h"

namespace {

enum Kind8 { INTEGER = 0, E4M3 = 1, E5M2 = 2 };
enum ScaleKind { NO_SCALE = 0, FP16 = 1, BF16 = 2, FP32 = 4 };

// One side of one layer, as kernels/quantized_pages.py lays it down: twelve 64-bit words.
struct Side {
    int64_t kind, bits, group, along_tokens, is_signed, scale_kind, n_apart;
    uint8_t *codes;
    void *scale, *zero, *apart;
    const int64_t *channels;  // [head][n]

    int64_t step() const { return along_tokens ? group : 1; }
    int64_t groups(int64_t dim) const { return along_tokens ? dim : scale_kind ? dim / group : 0; }
    int64_t bytes(int64_t dim) const { return (dim * step() * bits + 7) / 8; }
};

inline float number(const void *from, int64_t kind, int64_t i) {
    if (kind == FP32) return static_cast<const float *>(from)[i];
    const uint16_t bits = static_cast<const uint16_t *>(from)[i];
    if (kind == BF16) return _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32(int32_t(bits) << 16)));
    return _mm512_cvtss_f32(_mm512_cvtph_ps(_mm256_set1_epi16(int16_t(bits))));
}

// Sixteen numbers one after the other, or one sixteen times.
inline __m512 numbers16(const void *from, int64_t kind, int64_t i) {
    if (kind == FP32) return _mm512_loadu_ps(static_cast<const float *>(from) + i);
    const uint16_t *p = static_cast<const uint16_t *>(from) + i;
    return kind == BF16 ? load16(p) : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

inline __m512 spread16(const void *from, int64_t kind, int64_t i) {
    if (kind == FP32) return _mm512_set1_ps(static_cast<const float *>(from)[i]);
    const int16_t bits = static_cast<const int16_t *>(from)[i];
    return kind == BF16 ? _mm512_castsi512_ps(_mm512_set1_epi32(int32_t(uint16_t(bits)) << 16))
                        : _mm512_cvtph_ps(_mm256_set1_epi16(bits));
}

// How sixteen codes are read: i is a multiple of 16, counted from the start of the run.
template <int BITS, bool SIGNED>
struct Integers {
    static __m512 load(const uint8_t *run, int64_t i) {
        if constexpr (BITS == 8) {
            const __m128i codes = _mm_loadu_si128((const __m128i *)(run + i));
            return _mm512_cvtepi32_ps(SIGNED ? _mm512_cvtepi8_epi32(codes) : _mm512_cvtepu8_epi32(codes));
        } else {
            __m512i codes;
            if constexpr (BITS == 4) {
                const __m512i both = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(run + i / 2)));
                codes = _mm512_permutexvar_epi32(_mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0), both);
                codes = _mm512_srlv_epi32(codes, _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0));
            } else {
                int32_t word;
                std::memcpy(&word, run + i / 4, 4);
                codes = _mm512_srlv_epi32(_mm512_set1_epi32(word), _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10,
                                                                                     8, 6, 4, 2, 0));
            }
            codes = _mm512_and_si512(codes, _mm512_set1_epi32((1 << BITS) - 1));
            if constexpr (SIGNED) {
                const __m512i sign = _mm512_set1_epi32(1 << (BITS - 1));
                codes = _mm512_sub_epi32(_mm512_xor_si512(codes, sign), sign);
            }
            return _mm512_cvtepi32_ps(codes);
        }
    }
};

struct Floats4 {  // e4m3: its exponent and mantissa are fp32's first seven bits but for the bias; 0x7f is NaN
    static __m512 load(const uint8_t *run, int64_t i) {
        const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(run + i)));
        const __m512i size = _mm512_and_si512(codes, _mm512_set1_epi32(0x7f));
        __m512 x = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(size, 20)), _mm512_set1_ps(0x1p120f));
        x = _mm512_mask_mov_ps(x, _mm512_cmpeq_epi32_mask(size, _mm512_set1_epi32(0x7f)), _mm512_set1_ps(NAN));
        const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(codes, _mm512_set1_epi32(0x80)), 24);
        return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(x), sign));
    }
};

struct Floats5 {  // e5m2: the upper byte of fp16
    static __m512 load(const uint8_t *run, int64_t i) {
        const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(run + i)));
        return _mm512_cvtph_ps(_mm256_slli_epi16(codes, 8));
    }
};

#ifdef __AVX512VBMI__
// The upper and lower bytes of the bf16 numbers that 8-bit codes stand for, 64 at a time, by looking them up: a table holds
// what the lower 7 bits mean, and for unsigned integers a second one the same with the upper bit.
template <typename Reader>
struct Bytes {
    static constexpr bool UNSIGNED = std::is_same_v<Reader, Integers<8, false>>;
    static constexpr bool SIGNED = std::is_same_v<Reader, Integers<8, true>>;
    static constexpr bool GIVEN = UNSIGNED || SIGNED || std::is_same_v<Reader, Floats4> || std::is_same_v<Reader, Floats5>;

    struct Table {
        __m512i high[4], low[4];

        // The two bytes of each of 64 codes.
        void split(__m512i codes, __m512i &upper, __m512i &lower) const {
            const __m512i index = SIGNED ? _mm512_abs_epi8(codes) : codes;
            upper = _mm512_permutex2var_epi8(high[0], index, high[1]);
            lower = _mm512_permutex2var_epi8(low[0], index, low[1]);
            if constexpr (UNSIGNED) {
                const __mmask64 above = _mm512_movepi8_mask(codes);
                upper = _mm512_mask_blend_epi8(above, upper, _mm512_permutex2var_epi8(high[2], codes, high[3]));
                lower = _mm512_mask_blend_epi8(above, lower, _mm512_permutex2var_epi8(low[2], codes, low[3]));
            } else {
                upper = _mm512_ternarylogic_epi32(upper, codes, _mm512_set1_epi8(char(0x80)), 0xf8);  // upper | (codes & sign)
            }
        }
    };

    static Table made() {
        alignas(64) uint8_t high[256], low[256];
        for (int i = 0; i < 256; i += 16) {
            uint8_t codes[16];
            for (int j = 0; j < 16; j++) codes[j] = uint8_t(i + j);
            alignas(64) uint32_t bits[16];
            _mm512_store_si512(bits, _mm512_castps_si512(Reader::load(codes, 0)));
            for (int j = 0; j < 16; j++) high[i + j] = uint8_t(bits[j] >> 24), low[i + j] = uint8_t(bits[j] >> 16);
        }
        Table table;
        for (int i = 0; i < 4; i++) {
            table.high[i] = _mm512_load_si512(high + 64 * i);
            table.low[i] = _mm512_load_si512(low + 64 * i);
        }
        return table;
    }

    static inline const Table table = made();
};

// Bytes of two registers interleaved: 0, 64, 1, 65, … and on from byte ``first``, ``run`` neighbors in a row of the first.
alignas(64) inline const uint8_t ZIPPED[2][64] = {
    {0,  64, 1,  65, 2,  66, 3,  67, 4,  68, 5,  69, 6,  70, 7,  71, 8,  72, 9,  73, 10, 74, 11, 75, 12, 76, 13, 77, 14, 78, 15, 79,
     16, 80, 17, 81, 18, 82, 19, 83, 20, 84, 21, 85, 22, 86, 23, 87, 24, 88, 25, 89, 26, 90, 27, 91, 28, 92, 29, 93, 30, 94, 31, 95},
    {32, 96,  33, 97,  34, 98,  35, 99,  36, 100, 37, 101, 38, 102, 39, 103, 40, 104, 41, 105, 42, 106,
     43, 107, 44, 108, 45, 109, 46, 110, 47, 111, 48, 112, 49, 113, 50, 114, 51, 115, 52, 116, 53, 117,
     54, 118, 55, 119, 56, 120, 57, 121, 58, 122, 59, 123, 60, 124, 61, 125, 62, 126, 63, 127}};
// The same for the first, and for the last, two of each four bytes.
alignas(64) inline const uint8_t ZIPPED_PAIRS[2][64] = {
    {0,  64, 1,  65, 4,  68, 5,  69, 8,  72, 9,  73, 12, 76, 13, 77, 16, 80,  17, 81,  20, 84,  21, 85,  24, 88,  25, 89,  28, 92,  29, 93,
     32, 96, 33, 97, 36, 100, 37, 101, 40, 104, 41, 105, 44, 108, 45, 109, 48, 112, 49, 113, 52, 116, 53, 117, 56, 120, 57, 121, 60, 124, 61, 125},
    {2,  66, 3,  67, 6,  70,  7,  71,  10, 74,  11, 75,  14, 78,  15, 79,  18, 82,  19, 83,  22, 86,  23, 87,  26, 90,  27, 91,  30, 94,  31, 95,
     34, 98, 35, 99, 38, 102, 39, 103, 42, 106, 43, 107, 46, 110, 47, 111, 50, 114, 51, 115, 54, 118, 55, 119, 58, 122, 59, 123, 62, 126, 63, 127}};
#endif

// 32 codes as numbers that bf16 holds exactly (an integer of 8 bits, an 8-bit float), not yet times their scale.
template <typename Reader>
struct Plain {
    static void put(const uint8_t *run, int64_t i, float *to) {
        _mm512_storeu_ps(to, Reader::load(run, i)), _mm512_storeu_ps(to + 16, Reader::load(run, i + 16));
    }
    static void put(const uint8_t *run, int64_t i, uint16_t *to) {
        _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(Reader::load(run, i + 16), Reader::load(run, i)));
    }
};

// The bf16 numbers of up to 32 codes, to be looked up.
template <int BITS, bool SIGNED>
__m512i made_table() {
    alignas(64) uint16_t table[32] = {};
    for (int code = 0; code < 1 << BITS; code++) {
        const float x = float(SIGNED && code >> (BITS - 1) ? code - (1 << BITS) : code);
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        table[code] = uint16_t(bits >> 16);
    }
    return _mm512_load_si512(table);
}

template <int BITS, bool SIGNED>
const __m512i table_of = made_table<BITS, SIGNED>();

template <bool SIGNED>
struct Plain<Integers<4, SIGNED>> {
    static void put(const uint8_t *run, int64_t i, float *to) {
        using Reader = Integers<4, SIGNED>;
        _mm512_storeu_ps(to, Reader::load(run, i)), _mm512_storeu_ps(to + 16, Reader::load(run, i + 16));
    }
    static void put(const uint8_t *run, int64_t i, uint16_t *to) {
        const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(run + i / 2)));
        const __m512i codes = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
        const __m512i low = _mm512_and_si512(codes, _mm512_set1_epi16(15));
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(low, table_of<4, SIGNED>));
    }
};

template <bool SIGNED>
struct Plain<Integers<2, SIGNED>> {
    static void put(const uint8_t *run, int64_t i, float *to) {
        using Reader = Integers<2, SIGNED>;
        _mm512_storeu_ps(to, Reader::load(run, i)), _mm512_storeu_ps(to + 16, Reader::load(run, i + 16));
    }
    static void put(const uint8_t *run, int64_t i, uint16_t *to) {
        const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(run + i / 4)));
        const __m512i two = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 14));
        const __m512i four = _mm512_or_si512(two, _mm512_slli_epi64(two, 28));
        const __m512i low = _mm512_and_si512(four, _mm512_set1_epi16(3));
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(low, table_of<2, SIGNED>));
    }
};

// Call f with the reader of this side's codes.
template <typename F>
void with_reader(const Side &s, F f) {
    if (s.kind == E4M3) return f(Floats4{});
    if (s.kind == E5M2) return f(Floats5{});
    if (s.bits == 8) return s.is_signed ? f(Integers<8, true>{}) : f(Integers<8, false>{});
    if (s.bits == 4) return s.is_signed ? f(Integers<4, true>{}) : f(Integers<4, false>{});
    return s.is_signed ? f(Integers<2, true>{}) : f(Integers<2, false>{});
}

// The i-th code of a run by itself, for heads and groups that are no multiple of 16.
template <typename Reader>
float code_at(const Side &s, const uint8_t *run, int64_t i, Reader) {
    alignas(16) uint8_t few[16] = {};
    const int64_t per_byte = 8 / s.bits, shift = i % per_byte * s.bits;
    few[0] = uint8_t(run[i / per_byte] >> shift);
    return _mm512_cvtss_f32(Reader::load(few, 0));
}

}  // namespace
