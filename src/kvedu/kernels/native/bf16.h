// bfloat16 in registers: the upper half of an fp32.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <initializer_list>

inline __mmask16 first(int64_t n) { return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1); }

inline __m512 widen(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }

// Up to 16 elements as fp32; zeros after the last.
inline __m512 load16(const uint16_t *p, int64_t n = 16) { return widen(_mm256_maskz_loadu_epi16(first(n), p)); }

// Up to 16 elements, rounded to nearest even.
inline void store16(uint16_t *p, __m512 x, int64_t n = 16) {
    _mm256_mask_storeu_epi16(p, first(n), (__m256i)_mm512_cvtneps_pbh(x));
}

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
