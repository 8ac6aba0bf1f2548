// y = x W^T for rows and a weight in panels, both bf16 or both fp32; sums in fp32.
//
// Weight layout, made once by PanelWeight: [O / 32][I / STEP][32][STEP]. A panel is 32 output rows; within it,
// for bf16, the two weights that meet inputs i and i + 1 lie side by side, as VDPBF16PS wants them. So one
// pass over a panel is one pass over memory in order, whatever the number of rows in x.
//
// Every output is one chain of sums over i, in order: its bits do not depend on how many other rows
// x has. That makes the product batch-invariant, which the engine's tests rely on.

#include <immintrin.h>

#include <cstdint>

#include "kinds.h"

namespace {

constexpr int PANEL = 32;
constexpr int ROWS = 12;  // 24 sums, 2 weights and a broadcast: 27 of 32 registers

enum Epilogue { PLAIN, SWIGLU };

template <typename T>
struct Job {
    const T *x, *weight, *bias, *residual;
    T *y;
    int64_t rows, n_in, n_out;
};

// R rows of x against one panel.
template <int R, Epilogue E, typename T>
void tile(const Job<T> &job, int64_t row, int64_t panel) {
    using K = Kind<T>;
    const T *w = job.weight + panel * job.n_in * PANEL;
    const T *x = job.x + row * job.n_in;
    __m512 sum[R][2];
    for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t i = 0; i < job.n_in; i += K::STEP, w += PANEL * K::STEP) {
        const auto w0 = K::load(w), w1 = K::load(w + PANEL / 2 * K::STEP);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const auto both = K::spread(x + r * job.n_in + i);
            sum[r][0] = K::add(sum[r][0], w0, both);
            sum[r][1] = K::add(sum[r][1], w1, both);
        }
    }
    const int wide = E == SWIGLU ? PANEL / 2 : PANEL;  // outputs that a panel gives
    const int64_t first = panel * wide;
    if (job.bias) {
        const __m512 b0 = load16(job.bias + panel * PANEL), b1 = load16(job.bias + panel * PANEL + 16);
        for (int r = 0; r < R; r++) sum[r][0] = _mm512_add_ps(sum[r][0], b0), sum[r][1] = _mm512_add_ps(sum[r][1], b1);
    }
    for (int r = 0; r < R; r++) {
        T *y = job.y + (row + r) * job.n_out + first;
        if (E == SWIGLU) {
            store16(y, _mm512_mul_ps(silu(sum[r][0]), sum[r][1]), job.n_out - first);
            continue;
        }
        for (int half = 0; half < 2; half++) {
            const int64_t left = job.n_out - first - 16 * half;
            if (left <= 0) break;
            if (job.residual) {
                const T *old = job.residual + (row + r) * job.n_out + first + 16 * half;
                sum[r][half] = _mm512_add_ps(sum[r][half], load16(old, left));
            }
            store16(y + 16 * half, sum[r][half], left);
        }
    }
}

template <Epilogue E, typename T>
void tile_of(int count, const Job<T> &job, int64_t row, int64_t panel) {
    switch (count) {
        case 1: return tile<1, E>(job, row, panel);
        case 2: return tile<2, E>(job, row, panel);
        case 3: return tile<3, E>(job, row, panel);
        case 4: return tile<4, E>(job, row, panel);
        case 5: return tile<5, E>(job, row, panel);
        case 6: return tile<6, E>(job, row, panel);
        case 7: return tile<7, E>(job, row, panel);
        case 8: return tile<8, E>(job, row, panel);
        case 9: return tile<9, E>(job, row, panel);
        case 10: return tile<10, E>(job, row, panel);
        case 11: return tile<11, E>(job, row, panel);
        default: return tile<12, E>(job, row, panel);
    }
}

template <Epilogue E, typename T>
void product(const Job<T> &job, int threads) {
    const int wide = E == SWIGLU ? PANEL / 2 : PANEL;
    const int64_t panels = (job.n_out + wide - 1) / wide;
    const int64_t block = 480 / sizeof(T);  // rows of x that stay in a core's cache while all panels go by
    for (int64_t start = 0; start < job.rows; start += block) {
        const int64_t stop = start + block < job.rows ? start + block : job.rows;
        const int64_t tiles = (stop - start + ROWS - 1) / ROWS;
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t panel = 0; panel < panels; panel++)
            for (int64_t t = 0; t < tiles; t++) {  // tiles of equal height, give or take a row
                const int64_t from = start + (stop - start) * t / tiles, to = start + (stop - start) * (t + 1) / tiles;
                tile_of<E>(int(to - from), job, from, panel);
            }
    }
}

template <typename T>
void run(const void *x, const void *weight, const void *bias, const void *residual, void *y, int64_t rows, int64_t n_in,
         int64_t n_out, int gated, int threads) {
    const Job<T> job{(const T *)x, (const T *)weight, (const T *)bias, (const T *)residual, (T *)y, rows, n_in, n_out};
    if (gated)
        product<SWIGLU>(job, threads);
    else
        product<PLAIN>(job, threads);
}

}  // namespace

extern "C" void kvedu_linear(int fp32, const void *x, const void *weight, const void *bias, const void *residual, void *y,
                             int64_t rows, int64_t n_in, int64_t n_out, int gated, int threads) {
    (fp32 ? run<float> : run<uint16_t>)(x, weight, bias, residual, y, rows, n_in, n_out, gated, threads);
}
