// What happens to each row by itself between the products: RMSNorm, RoPE, and the way into the pages.

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "bf16.h"

namespace {

constexpr int64_t ALONE = 16;  // rows up to which one thread is quicker than waking another

void norm(const uint16_t *x, const uint16_t *weight, uint16_t *y, int64_t width, float eps) {
    __m512 squares = _mm512_setzero_ps();
    for (int64_t i = 0; i < width; i += 16) {
        const __m512 part = load16(x + i, width - i);
        squares = _mm512_fmadd_ps(part, part, squares);
    }
    const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / float(width) + eps));
    for (int64_t i = 0; i < width; i += 16) {
        const __m512 part = _mm512_mul_ps(load16(x + i, width - i), scale);
        store16(y + i, _mm512_mul_ps(part, load16(weight + i, width - i)), width - i);
    }
}

// Halves (a, b) become (a cos - b sin, b cos + a sin); cos and sin are [dim], sin's first half negative.
void turn(const uint16_t *x, const float *cos, const float *sin, uint16_t *y, int64_t dim, int64_t whole) {
    const int64_t half = dim / 2;
    for (int64_t i = 0; i < half; i += 16) {
        const int64_t left = half - i;
        const __mmask16 part = first(left);
        const __m512 a = load16(x + i, left), b = load16(x + half + i, left);
        const __m512 c = _mm512_maskz_loadu_ps(part, cos + i), s = _mm512_maskz_loadu_ps(part, sin + half + i);
        store16(y + i, _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c)), left);
        store16(y + half + i, _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)), left);
    }
    if (whole > dim) std::memcpy(y + dim, x + dim, (whole - dim) * 2);
}

}  // namespace

extern "C" void kvedu_rmsnorm(const uint16_t *x, const uint16_t *weight, uint16_t *y, int64_t rows, int64_t width,
                              float eps, int threads) {
#pragma omp parallel for num_threads(threads) if (rows > ALONE)
    for (int64_t n = 0; n < rows; n++) norm(x + n * width, weight, y + n * width, width, eps);
}

extern "C" void kvedu_rotate(const uint16_t *q, const uint16_t *k, int64_t q_stride, int64_t k_stride, const float *cos,
                             const float *sin, uint16_t *q_out, uint16_t *k_out, int64_t rows, int64_t heads,
                             int64_t kv_heads, int64_t dim, int64_t whole, int threads) {
#pragma omp parallel for num_threads(threads) if (rows > ALONE)
    for (int64_t n = 0; n < rows; n++) {
        const float *c = cos + n * dim, *s = sin + n * dim;
        for (int64_t h = 0; h < heads; h++)
            turn(q + n * q_stride + h * whole, c, s, q_out + (n * heads + h) * whole, dim, whole);
        for (int64_t h = 0; h < kv_heads; h++)
            turn(k + n * k_stride + h * whole, c, s, k_out + (n * kv_heads + h) * whole, dim, whole);
    }
}

extern "C" void kvedu_write(const uint16_t *k, const uint16_t *v, int64_t k_stride, int64_t v_stride, uint16_t *k_pages,
                            uint16_t *v_pages, const int64_t *slots, int64_t rows, int64_t kv_heads, int64_t dim,
                            int64_t page_size, int64_t page_stride, int64_t token_stride, int64_t head_stride,
                            int threads) {
#pragma omp parallel for num_threads(threads) if (rows > ALONE)
    for (int64_t n = 0; n < rows; n++) {
        const int64_t page = slots[n] / page_size;
        const int64_t at = page * page_stride + (slots[n] - page * page_size) * token_stride;
        for (int64_t h = 0; h < kv_heads; h++) {
            std::memcpy(k_pages + at + h * head_stride, k + n * k_stride + h * dim, dim * 2);
            std::memcpy(v_pages + at + h * head_stride, v + n * v_stride + h * dim, dim * 2);
        }
    }
}
