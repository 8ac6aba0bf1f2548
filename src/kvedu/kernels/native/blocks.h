// Attention a block of 64 keys at a time: how keys and values are laid out for the registers, and how queries meet them.
//
// Blocks are always cut at multiples of 64 from a sequence's first token, and the softmax is carried along (online
// softmax, Milakov and Gimelshein 2018).
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kinds.h"

namespace {

constexpr int BLOCK = 64;  // keys of a block: four registers of scores
constexpr int ROWS = 4;    // query rows that share the loads of a block
constexpr float NEVER = -std::numeric_limits<float>::infinity();

int64_t padded(int64_t dim) { return (dim + 31) / 32 * 32; }

__mmask32 first32(int64_t n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1; }

// 64 bytes of a row of n elements, zeros after the last.
__m512i row64(const float *p, int64_t n) { return _mm512_castps_si512(load16(p, n)); }
__m512i row64(const uint16_t *p, int64_t n) { return _mm512_maskz_loadu_epi16(first32(n), p); }

template <typename T>
struct Scratch {
    std::vector<T> q, p, k, v;
    std::vector<float> sums, top, total;

    void fit(int64_t rows, int64_t dim) {
        q.resize(rows * dim), p.resize(ROWS * BLOCK);
        k.resize(padded(dim) * BLOCK), v.resize(padded(dim) * BLOCK);
        begin(rows, dim);
    }

    void begin(int64_t rows, int64_t dim) {
        sums.assign(rows * padded(dim), 0.0f), top.assign(rows, NEVER), total.assign(rows, 0.0f);
    }
};

// Keys of a part. Each part of a sequence is summed by itself, and the parts are folded together in their order, by one
// thread or after several: so that a lone long sequence keeps all threads busy, and a query's bits do not tell.
constexpr int64_t PART = 1024;

// What a row has come to: its weighted sums, the largest score, the sum of the weights.
struct Folded {
    std::vector<float> rows;

    void begin(int64_t count, int64_t width) {
        rows.assign(count * (width + 2), 0.0f);
        for (int64_t row = 0; row < count; row++) rows[row * (width + 2) + width] = NEVER;
    }
};

// A row of one more part joins what is there. Never inlined, so that it rounds the same wherever it is called.
__attribute__((noinline)) inline void fold(float *all, const float *sums, float top, float total, int64_t width) {
    if (top == NEVER) return;
    float &all_top = all[width], &all_total = all[width + 1];
    if (all_top == NEVER) {
        std::memcpy(all, sums, width * sizeof(float));
        all_top = top, all_total = total;
        return;
    }
    const float most = std::max(all_top, top);
    const __m512 old = exp2_16(_mm512_set1_ps(all_top - most)), fresh = exp2_16(_mm512_set1_ps(top - most));
    for (int64_t d = 0; d < width; d += 16)
        _mm512_storeu_ps(all + d, _mm512_fmadd_ps(_mm512_loadu_ps(sums + d), fresh, _mm512_mul_ps(_mm512_loadu_ps(all + d), old)));
    all_total = all_total * _mm512_cvtss_f32(old) + total * _mm512_cvtss_f32(fresh);
    all_top = most;
}

// The same for all rows of a scratch.
template <typename T>
void fold(Folded &all, const Scratch<T> &s, int64_t count, int64_t width) {
    for (int64_t row = 0; row < count; row++)
        fold(all.rows.data() + row * (width + 2), s.sums.data() + row * width, s.top[row], s.total[row], width);
}

// A folded row as an output.
template <typename T>
void finish(const float *all, int64_t width, T *out, int64_t dim) {
    const __m512 share = _mm512_set1_ps(1.0f / all[width + 1]);
    for (int64_t d = 0; d < dim; d += 16) store16(out + d, _mm512_mul_ps(_mm512_loadu_ps(all + d), share), dim - d);
}

struct Span {
    int64_t low, high, queries;  // first and last part of an item's keys, its query rows
};

// Items taken apart, where there are fewer than ``enough``: one for each part of their keys, and room for what each comes to.
template <typename Item>
struct Parts {
    bool apart;
    int64_t width;
    std::vector<Item> items;
    std::vector<int64_t> counts, places;
    std::vector<float> folded;

    template <typename F>
    Parts(const std::vector<Item> &whole, int64_t enough, int64_t width, F span_of)
        : apart(int64_t(whole.size()) < enough), width(width) {
        if (!apart) return;
        int64_t size = 0;
        for (const Item &item : whole) {
            const Span span = span_of(item);
            places.push_back(size), counts.push_back(span.high - span.low + 1);
            for (int64_t part = span.low; part <= span.high; part++) {
                items.push_back(item);
                items.back().part = part;
            }
            size += counts.back() * span.queries * (width + 2);
        }
        folded.resize(size);
        for (size_t i = 0, next = 0; i < whole.size(); i++)
            for (int64_t part = 0; part < counts[i]; part++, next++)
                items[next].folded = folded.data() + places[i] + part * span_of(whole[i]).queries * (width + 2);
    }

    // The parts of item i become its outputs.
    template <typename Step>
    void join(const Step &s, const Item &item, int64_t i, Folded &all) const {
        const int64_t rows = item.queries(s), size = width + 2;
        all.begin(rows, width);
        for (int64_t part = 0; part < counts[i]; part++)
            for (int64_t row = 0; row < rows; row++) {
                const float *one = folded.data() + places[i] + (part * rows + row) * size;
                fold(all.rows.data() + row * size, one, one[width], one[width + 1], width);
            }
        for (int64_t row = 0; row < rows; row++)
            finish(all.rows.data() + row * size, width, s.out + item.index_of(s, row) * s.dim, s.dim);
    }
};

// 16 rows of 16 dwords become 16 columns.
void transpose(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

// Keys of a block, [dim / STEP][64][STEP]: what a query's elements meet in one register per 16 keys.
template <typename T>
void load_keys(const T *pages, const int64_t at[BLOCK], int64_t dim, T *k) {
    constexpr int STEP = Kind<T>::STEP;
    for (int64_t d = 0; d < dim; d += 16 * STEP)
        for (int g = 0; g < BLOCK; g += 16) {
            __m512i r[16];
            for (int j = 0; j < 16; j++)
                r[j] = at[g + j] < 0 ? _mm512_setzero_si512() : row64(pages + at[g + j] + d, dim - d);
            transpose(r);
            for (int j = 0; j < 16; j++) _mm512_storeu_si512(k + d * BLOCK + (j * BLOCK + g) * STEP, r[j]);
        }
}

// Values of a block: fp32 as they are, [64][dim] …
void load_values(const float *pages, const int64_t at[BLOCK], int64_t dim, float *v) {
    for (int j = 0; j < BLOCK && at[j] >= 0; j++)
        for (int64_t d = 0; d < dim; d += 16) _mm512_storeu_ps(v + j * padded(dim) + d, load16(pages + at[j] + d, dim - d));
}

// … and bf16 in pairs of neighbouring keys, [32][dim][2].
void load_values(const uint16_t *pages, const int64_t at[BLOCK], int64_t dim, uint16_t *v) {
    alignas(64) static constexpr uint16_t ZIP[2][32] = {
        {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    const __m512i low = _mm512_load_si512(ZIP[0]), high = _mm512_load_si512(ZIP[1]);
    for (int j = 0; j < BLOCK && at[j] >= 0; j += 2)
        for (int64_t d = 0; d < dim; d += 32) {
            const __m512i a = row64(pages + at[j] + d, dim - d);
            const __m512i b = at[j + 1] < 0 ? _mm512_setzero_si512() : row64(pages + at[j + 1] + d, dim - d);
            uint16_t *to = v + j * padded(dim) + 2 * d;
            _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
            _mm512_storeu_si512(to + 32, _mm512_permutex2var_epi16(a, high, b));
        }
}

// Add Z registers of weighted values to R rows of sums.
template <int R, int Z, typename T>
void weigh(const T *v, int64_t width, const T *p, float *sums, const float *shrink, int keys) {
    using K = Kind<T>;
    __m512 sum[R][Z];
    for (int r = 0; r < R; r++)
        for (int z = 0; z < Z; z++)
            sum[r][z] = _mm512_mul_ps(_mm512_loadu_ps(sums + r * width + 16 * z), _mm512_set1_ps(shrink[r]));
    for (int j = 0; j < keys; j += K::STEP) {
        typename K::Vector values[Z];
        for (int z = 0; z < Z; z++) values[z] = K::load(v + j * width + 16 * z * K::STEP);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const auto both = K::spread(p + r * BLOCK + j);
            for (int z = 0; z < Z; z++) sum[r][z] = K::add(sum[r][z], values[z], both);
        }
    }
    for (int r = 0; r < R; r++)
        for (int z = 0; z < Z; z++) _mm512_storeu_ps(sums + r * width + 16 * z, sum[r][z]);
}

uint64_t first64(int64_t n) { return n >= BLOCK ? ~uint64_t{0} : n <= 0 ? 0 : (uint64_t{1} << n) - 1; }

// Keys low .. high - 1 of a block, a bit for each.
uint64_t between(int64_t low, int64_t high) { return first64(high) & ~first64(low); }

// The scores of one row become weights, what was summed before shrinks by the factor that is given back.
template <typename T>
inline __attribute__((always_inline)) float soften(Scratch<T> &s, int64_t row, uint64_t sees, float scale, __m512 *score,
                                                   __m512 *weight) {
    __mmask16 seen[4];
    for (int g = 0; g < 4; g++) {
        seen[g] = __mmask16(sees >> 16 * g);
        score[g] = _mm512_mask_mul_ps(_mm512_set1_ps(NEVER), seen[g], score[g], _mm512_set1_ps(scale));
    }
    const __m512 most = _mm512_max_ps(_mm512_max_ps(score[0], score[1]), _mm512_max_ps(score[2], score[3]));
    const float old = s.top[row], top = std::max(old, _mm512_reduce_max_ps(most));
    __m512 total = _mm512_setzero_ps();
    for (int g = 0; g < 4; g++) {
        weight[g] = _mm512_maskz_mov_ps(seen[g], exp2_16(_mm512_sub_ps(score[g], _mm512_set1_ps(top))));
        total = _mm512_add_ps(total, weight[g]);
    }
    const float shrink = old == top ? 1.0f : _mm512_cvtss_f32(exp2_16(_mm512_set1_ps(old - top)));
    s.top[row] = top;
    s.total[row] = s.total[row] * shrink + _mm512_reduce_add_ps(total);
    return shrink;
}

// Columns from .. to - 1 of the values, weighted by s.p, join the sums of R rows.
template <int R, typename T>
void weigh_all(Scratch<T> &s, int64_t row, int64_t width, int64_t from, int64_t to, const float *shrink, int n) {
    for (int64_t d = from; d < to; d += 64) {
        float *sums = s.sums.data() + row * width + d;
        const T *v = s.v.data() + d * Kind<T>::STEP;
        switch (std::min<int64_t>(to - d, 64) / 16) {
            case 1: weigh<R, 1>(v, width, s.p.data(), sums, shrink, n); break;
            case 2: weigh<R, 2>(v, width, s.p.data(), sums, shrink, n); break;
            case 3: weigh<R, 3>(v, width, s.p.data(), sums, shrink, n); break;
            default: weigh<R, 4>(v, width, s.p.data(), sums, shrink, n);
        }
    }
}

// R query rows meet one block of n keys; a bit of sees[r] for each key that row r may see.
template <int R, typename T>
void meet(Scratch<T> &s, int64_t row, int64_t dim, float scale, int n, const uint64_t *sees) {
    using K = Kind<T>;
    const T *q = s.q.data() + row * dim;
    __m512 score[R][4];
    for (int r = 0; r < R; r++)
        for (int g = 0; g < 4; g++) score[r][g] = _mm512_setzero_ps();
    for (int64_t d = 0; d < dim; d += K::STEP) {
        typename K::Vector keys[4];
        for (int g = 0; g < 4; g++) keys[g] = K::load(s.k.data() + d * BLOCK + 16 * g * K::STEP);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const auto both = K::spread(q + r * dim + d);
            for (int g = 0; g < 4; g++) score[r][g] = K::add(score[r][g], keys[g], both);
        }
    }
    float shrink[ROWS];
    for (int r = 0; r < R; r++) {
        __m512 weight[4];
        shrink[r] = soften(s, row + r, sees[r], scale, score[r], weight);
        for (int g = 0; g < 4; g += 2) K::store32(s.p.data() + r * BLOCK + 16 * g, weight[g], weight[g + 1]);
    }
    weigh_all<R>(s, row, padded(dim), 0, padded(dim), shrink, n);
}

}  // namespace
