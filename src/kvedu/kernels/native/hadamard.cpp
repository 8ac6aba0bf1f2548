// The Hadamard rotation of each head (kernels/hadamard.py) as butterflies: log2(n) rounds of sums and differences, in fp32.

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kinds.h"

namespace {

template <typename T>
void turn(const T *x, T *y, int64_t dim, int64_t block, float *room) {
    for (int64_t d = 0; d < dim; d += 16) _mm512_storeu_ps(room + d, load16(x + d, dim - d));
    for (int64_t half = 1; half < block; half *= 2)
        for (int64_t i = 0; i < dim; i += 2 * half)
            for (int64_t j = i; j < i + half; j++) {
                const float a = room[j], b = room[j + half];
                room[j] = a + b, room[j + half] = a - b;
            }
    const __m512 share = _mm512_set1_ps(1.0f / std::sqrt(float(block)));
    for (int64_t d = 0; d < dim; d += 16) store16(y + d, _mm512_mul_ps(_mm512_loadu_ps(room + d), share), dim - d);
}

template <typename T>
void turn_all(const T *x, T *y, int64_t vectors, int64_t dim, int64_t block, int threads) {
#pragma omp parallel num_threads(threads) if (vectors > 256)
    {
        std::vector<float> room(dim + 16);
#pragma omp for
        for (int64_t i = 0; i < vectors; i++) turn(x + i * dim, y + i * dim, dim, block, room.data());
    }
}

}  // namespace

extern "C" void kvedu_hadamard(int fp32, const void *x, void *y, int64_t vectors, int64_t dim, int64_t block, int threads) {
    if (fp32)
        turn_all((const float *)x, (float *)y, vectors, dim, block, threads);
    else
        turn_all((const uint16_t *)x, (uint16_t *)y, vectors, dim, block, threads);
}
