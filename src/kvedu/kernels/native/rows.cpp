// What happens to each row by itself between the products: RMSNorm, RoPE, and the way into the pages.

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kinds.h"

namespace {

constexpr int64_t ALONE = 16;  // rows up to which one thread is quicker than waking another

template <typename T>
void norm(const T *x, const T *weight, T *y, int64_t width, float eps) {
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
template <typename T>
void turn(const T *x, const float *cos, const float *sin, T *y, int64_t dim, int64_t whole) {
    const int64_t half = dim / 2;
    for (int64_t i = 0; i < half; i += 16) {
        const int64_t left = half - i;
        const __mmask16 part = first(left);
        const __m512 a = load16(x + i, left), b = load16(x + half + i, left);
        const __m512 c = _mm512_maskz_loadu_ps(part, cos + i), s = _mm512_maskz_loadu_ps(part, sin + half + i);
        store16(y + i, _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c)), left);
        store16(y + half + i, _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)), left);
    }
    if (whole > dim) std::memcpy(y + dim, x + dim, (whole - dim) * sizeof(T));
}

template <typename T>
void norm_all(const T *x, const T *weight, T *y, int64_t rows, int64_t width, float eps, int threads) {
#pragma omp parallel for num_threads(threads) if (rows > ALONE)
    for (int64_t n = 0; n < rows; n++) norm(x + n * width, weight, y + n * width, width, eps);
}

template <typename T>
void turn_all(const T *q, const T *k, int64_t q_stride, int64_t k_stride, const float *cos, const float *sin, T *q_out,
              T *k_out, int64_t rows, int64_t heads, int64_t kv_heads, int64_t dim, int64_t whole, int threads) {
#pragma omp parallel for num_threads(threads) if (rows > ALONE)
    for (int64_t n = 0; n < rows; n++) {
        const float *c = cos + n * dim, *s = sin + n * dim;
        for (int64_t h = 0; h < heads; h++)
            turn(q + n * q_stride + h * whole, c, s, q_out + (n * heads + h) * whole, dim, whole);
        for (int64_t h = 0; h < kv_heads; h++)
            turn(k + n * k_stride + h * whole, c, s, k_out + (n * kv_heads + h) * whole, dim, whole);
    }
}

// Rows of keys and values to their slots; all lengths in bytes, so that it serves any kind of number.
void write_all(const char *k, const char *v, int64_t k_stride, int64_t v_stride, char *k_pages, char *v_pages,
               const int64_t *slots, int64_t rows, int64_t kv_heads, int64_t head, int64_t page_size,
               int64_t page_stride, int64_t token_stride, int64_t head_stride, int threads) {
#pragma omp parallel for num_threads(threads) if (rows > ALONE)
    for (int64_t n = 0; n < rows; n++) {
        const int64_t page = slots[n] / page_size;
        const int64_t at = page * page_stride + (slots[n] - page * page_size) * token_stride;
        for (int64_t h = 0; h < kv_heads; h++) {
            std::memcpy(k_pages + at + h * head_stride, k + n * k_stride + h * head, head);
            std::memcpy(v_pages + at + h * head_stride, v + n * v_stride + h * head, head);
        }
    }
}

}  // namespace

extern "C" void kvedu_rmsnorm(int fp32, const void *x, const void *weight, void *y, int64_t rows, int64_t width, float eps,
                              int threads) {
    if (fp32)
        norm_all((const float *)x, (const float *)weight, (float *)y, rows, width, eps, threads);
    else
        norm_all((const uint16_t *)x, (const uint16_t *)weight, (uint16_t *)y, rows, width, eps, threads);
}

extern "C" void kvedu_rotate(int fp32, const void *q, const void *k, int64_t q_stride, int64_t k_stride, const float *cos,
                             const float *sin, void *q_out, void *k_out, int64_t rows, int64_t heads, int64_t kv_heads,
                             int64_t dim, int64_t whole, int threads) {
    if (fp32)
        turn_all((const float *)q, (const float *)k, q_stride, k_stride, cos, sin, (float *)q_out, (float *)k_out, rows,
                 heads, kv_heads, dim, whole, threads);
    else
        turn_all((const uint16_t *)q, (const uint16_t *)k, q_stride, k_stride, cos, sin, (uint16_t *)q_out,
                 (uint16_t *)k_out, rows, heads, kv_heads, dim, whole, threads);
}

extern "C" void kvedu_write(int fp32, const void *k, const void *v, int64_t k_stride, int64_t v_stride, void *k_pages,
                            void *v_pages, const int64_t *slots, int64_t rows, int64_t kv_heads, int64_t dim,
                            int64_t page_size, int64_t page_stride, int64_t token_stride, int64_t head_stride,
                            int threads) {
    const int64_t size = fp32 ? 4 : 2;
    write_all((const char *)k, (const char *)v, k_stride * size, v_stride * size, (char *)k_pages, (char *)v_pages, slots,
              rows, kv_heads, dim * size, page_size, page_stride * size, token_stride * size, head_stride * size, threads);
}
