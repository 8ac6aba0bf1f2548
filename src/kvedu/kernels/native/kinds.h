// The two kinds of numbers that the kernels take, bf16 and fp32, sixteen sums at a time.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

inline __mmask16 first(int64_t n) { return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1); }

// Up to 16 elements as fp32, zeros after the last; and back, bf16 rounded to nearest even.
inline __m512 load16(const float *p, int64_t n = 16) { return _mm512_maskz_loadu_ps(first(n), p); }

inline __m512 load16(const uint16_t *p, int64_t n = 16) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), p)), 16));
}

inline void store16(float *p, __m512 x, int64_t n = 16) { _mm512_mask_storeu_ps(p, first(n), x); }

inline void store16(uint16_t *p, __m512 x, int64_t n = 16) {
    _mm256_mask_storeu_epi16(p, first(n), (__m256i)_mm512_cvtneps_pbh(x));
}

// How a kind multiplies: a lane of a register holds STEP neighbours, which meet STEP neighbours of the other side.
template <typename T>
struct Kind;

template <>
struct Kind<float> {
    static constexpr int STEP = 1;
    using Vector = __m512;
    static Vector load(const void *p) { return _mm512_loadu_ps(p); }
    static Vector spread(const float *p) { return _mm512_set1_ps(*p); }
    static __m512 add(__m512 sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
    static void store32(float *p, __m512 a, __m512 b) { _mm512_storeu_ps(p, a), _mm512_storeu_ps(p + 16, b); }
};

template <>
struct Kind<uint16_t> {
    static constexpr int STEP = 2;
    using Vector = __m512bh;
    static Vector load(const void *p) { return (__m512bh)_mm512_loadu_si512(p); }
    static Vector spread(const uint16_t *p) {
        int32_t pair;
        std::memcpy(&pair, p, 4);
        return (__m512bh)_mm512_set1_epi32(pair);
    }
    static __m512 add(__m512 sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, a, b); }
    static void store32(uint16_t *p, __m512 a, __m512 b) { _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(b, a)); }
};

// 2^x to about 2e-7, for x up to 127: 2^n times a polynomial on [-1/2, 1/2]. Below -126 it gives 2^-126; NaN stays NaN.
inline __m512 exp2_16(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-126.0f), x);  // the second operand wins where one is NaN
    const __m512 n = _mm512_roundscale_ps(x, 0), r = _mm512_sub_ps(x, n);
    __m512 y = _mm512_set1_ps(1.540353039e-4f);
    for (float c : {1.333355815e-3f, 9.618129108e-3f, 5.550410866e-2f, 2.402265070e-1f, 6.931471806e-1f, 1.0f})
        y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(c));
    return _mm512_scalef_ps(y, n);
}

constexpr float LOG2_E = 1.44269504f;

inline __m512 silu(__m512 x) {
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 power = _mm512_min_ps(_mm512_set1_ps(126.0f), _mm512_mul_ps(x, _mm512_set1_ps(-LOG2_E)));
    return _mm512_div_ps(x, _mm512_add_ps(one, exp2_16(power)));
}
