// Attention over quantized pages: codes are turned into numbers a block of 64 keys at a time, in the cache of a core, and
// meet the queries as the kernel for plain pages has them do (blocks.h). bf16 or fp32 in and out.
//
// A query sees a key as a code once the key is old enough: the query with i tokens before it sees the first
// coded(i) of them as codes, the others as they came. That depends on positions alone, so a query's bits depend neither
// on how its prompt was cut into chunks, nor on who else is in the step.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "blocks.h"
#include "codes.h"

namespace {

template <typename T>
struct Step {
    const T *q;
    T *out;
    const Side *sides[2];          // keys, values
    const T *fresh[2], *tails[2];  // the step's own keys and values; the last ones before it, [slots][tail][head][dim]
    int64_t fresh_row[2];          // elements from one row of them to the next
    const int32_t *tables;         // [sequences, pages]
    const int64_t *rows;           // [sequences, 4]: first row in q, new tokens, committed tokens, slot of the tail
    int64_t sequences, table_width, heads, kv_heads, dim, page_size, tail, residual, unit, window;
    float scale;

    int64_t coded(int64_t before) const { return std::max<int64_t>(0, before - residual) / unit * unit; }
};

struct Item {
    int64_t sequence, from, to, head;  // new tokens from .. to - 1 of a sequence, with one KV head
    int64_t part = -1;                 // one part of its keys, or all of them
    float *folded = nullptr;           // where one part's rows go

    template <typename T>
    int64_t end(const Step<T> &s) const { return s.rows[4 * sequence + 2] + to; }  // one past the last key

    template <typename T>
    int64_t first(const Step<T> &s) const {  // the first key of the first block
        const int64_t oldest = s.window ? s.rows[4 * sequence + 2] + from + 1 - s.window : 0;
        return std::max<int64_t>(0, oldest) / BLOCK * BLOCK;
    }

    template <typename T>
    int64_t queries(const Step<T> &s) const { return (to - from) * (s.heads / s.kv_heads); }

    template <typename T>
    int64_t index_of(const Step<T> &s, int64_t row) const {  // among all queries of the step
        const int64_t group = s.heads / s.kv_heads;
        return (s.rows[4 * sequence] + from + row / group) * s.heads + head * group + row % group;
    }
};

inline void put(float *to, __m512 x) { store16(to, x); }
inline void put(uint16_t *to, __m512 x) { store16(to, x); }
inline void put1(float *to, float x) { *to = x; }
inline void put1(uint16_t *to, float x) { store16(to, _mm512_set1_ps(x), 1); }

// Where n tokens lie that were coded one by one: their vectors' numbers among all.
template <typename T>
void find(const Step<T> &s, const Item &item, int64_t key, int n, int64_t *at) {
    const int32_t *table = s.tables + item.sequence * s.table_width;
    int64_t page = key / s.page_size, offset = key - page * s.page_size;
    for (int j = 0; j < n; j++) {
        at[j] = (table[page] * s.page_size + offset) * s.kv_heads + item.head;
        if (++offset == s.page_size) page++, offset = 0;
    }
}

// Whether scales can wait: codes go to the registers as they are, and scores and weights are scaled instead.
inline bool scales_wait(const Side &s, int64_t dim) {
    return !s.along_tokens && !s.n_apart && dim % 32 == 0 && (!s.scale_kind || s.group % 16 == 0);
}

// Scales and zero points of a block's tokens, [group][64] each; none where numbers are whole already.
struct Factors {
    int64_t groups = 0;
    bool zeros = false;
    std::vector<float> scale, zero;
};

#ifdef __AVX512VBMI__
// Keys of a block straight from their bytes to where ``load_keys`` of blocks.h would put them; dim a multiple of 64.
template <typename Reader>
void keys_of_bytes(const uint8_t *const *runs, int n, int64_t dim, uint16_t *k) {
    const auto table = Bytes<Reader>::table;
    const __m512i first = _mm512_load_si512(ZIPPED_PAIRS[0]), second = _mm512_load_si512(ZIPPED_PAIRS[1]);
    for (int64_t d = 0; d < dim; d += 64)
        for (int g = 0; g < n; g += 16) {
            __m512i r[16];
            for (int j = 0; j < 16; j++) r[j] = g + j < n ? _mm512_loadu_si512(runs[g + j] + d) : _mm512_setzero_si512();
            transpose(r);
            for (int j = 0; j < 16; j++) {  // 16 keys, four elements of each
                __m512i high, low;
                table.split(r[j], high, low);
                uint16_t *to = k + (d + 4 * j) * BLOCK + 2 * g;
                _mm512_storeu_si512(to, _mm512_permutex2var_epi8(low, first, high));
                _mm512_storeu_si512(to + 2 * BLOCK, _mm512_permutex2var_epi8(low, second, high));
            }
        }
}

// Rows of bytes as bf16; dim a multiple of 64.
template <typename Reader>
void rows_of_bytes(const uint8_t *const *runs, int n, int64_t dim, uint16_t *rows) {
    const auto table = Bytes<Reader>::table;
    const __m512i first = _mm512_load_si512(ZIPPED[0]), second = _mm512_load_si512(ZIPPED[1]);
    for (int64_t d = 0; d < dim; d += 64)
        for (int j = 0; j < n; j++) {
            __m512i high, low;
            table.split(_mm512_loadu_si512(runs[j] + d), high, low);
            _mm512_storeu_si512(rows + j * dim + d, _mm512_permutex2var_epi8(low, first, high));
            _mm512_storeu_si512(rows + j * dim + d + 32, _mm512_permutex2var_epi8(low, second, high));
        }
}
#endif

// Numbers of a block's tokens, group by group, as fp32 [group][64]; 0 after the last token.
template <typename Word>
void spread_numbers(const void *from, int64_t kind, const int64_t *at, int n, int64_t groups, float *to) {
    for (int64_t g = 0; g < groups; g++) {
        alignas(64) Word few[BLOCK] = {};
        for (int j = 0; j < n; j++) few[j] = static_cast<const Word *>(from)[at[j] * groups + g];
        for (int j = 0; j < BLOCK; j += 16) _mm512_storeu_ps(to + g * BLOCK + j, numbers16(few, kind, j));
    }
}

inline void spread_numbers(const void *from, int64_t kind, const int64_t *at, int n, int64_t groups, float *to) {
    kind == FP32 ? spread_numbers<uint32_t>(from, kind, at, n, groups, to) : spread_numbers<uint16_t>(from, kind, at, n, groups, to);
}

// Rows of n tokens' codes, and their scales apart; or, true, the keys laid out already.
template <typename Reader, typename T>
bool codes_of_tokens(const Side &s, const int64_t *at, int n, int64_t dim, T *rows, T *keys, Factors &factors) {
    const int64_t bytes = s.bytes(dim), groups = s.groups(dim);
    factors.groups = groups, factors.zeros = s.zero;
    factors.scale.resize(groups * BLOCK), factors.zero.resize(groups * BLOCK);
    if (groups) spread_numbers(s.scale, s.scale_kind, at, n, groups, factors.scale.data());
    if (s.zero) spread_numbers(s.zero, s.scale_kind, at, n, groups, factors.zero.data());
    const uint8_t *runs[BLOCK];
    for (int j = 0; j < n; j++) runs[j] = s.codes + at[j] * bytes;
#ifdef __AVX512VBMI__
    if constexpr (Bytes<Reader>::GIVEN && std::is_same_v<T, uint16_t>)
        if (dim % 64 == 0) {
            if (keys) return keys_of_bytes<Reader>(runs, n, dim, keys), true;
            return rows_of_bytes<Reader>(runs, n, dim, rows), false;
        }
#endif
    for (int j = 0; j < n; j++)
        for (int64_t d = 0; d < dim; d += 32) Plain<Reader>::put(runs[j], d, rows + j * dim + d);
    return false;
}

// Rows of n tokens whose vectors are coded one by one.
template <typename T, typename Reader>
void rows_of_tokens(const Side &s, const int32_t *table, int64_t page_size, int64_t kv_heads, int64_t head, int64_t dim,
                    int64_t key, int n, T *rows, Reader) {
    const int64_t bytes = s.bytes(dim), groups = s.groups(dim), group = groups ? s.group : dim;
    const bool wide = dim % 16 == 0 && group % 16 == 0;
    int64_t page = key / page_size, offset = key - page * page_size;
    for (int j = 0; j < n; j++, rows += dim) {
        const int64_t at = (table[page] * page_size + offset) * kv_heads + head;
        const uint8_t *run = s.codes + at * bytes;
        for (int64_t g = 0; g < dim / group; g++) {
            if (wide) {
                const __m512 scale = groups ? spread16(s.scale, s.scale_kind, at * groups + g) : _mm512_set1_ps(1.0f);
                const __m512 zero = s.zero ? spread16(s.zero, s.scale_kind, at * groups + g) : _mm512_setzero_ps();
                for (int64_t d = g * group; d < (g + 1) * group; d += 16)
                    put(rows + d, _mm512_add_ps(_mm512_mul_ps(Reader::load(run, d), scale), zero));
            } else {
                const float scale = groups ? number(s.scale, s.scale_kind, at * groups + g) : 1.0f;
                const float zero = s.zero ? number(s.zero, s.scale_kind, at * groups + g) : 0.0f;
                for (int64_t d = g * group; d < (g + 1) * group; d++) {
                    const float product = code_at(s, run, d, Reader{}) * scale;
                    put1(rows + d, product + zero);
                }
            }
        }
        for (int64_t i = 0; i < s.n_apart; i++)
            put1(rows + s.channels[head * s.n_apart + i], number(s.apart, s.scale_kind, at * s.n_apart + i));
        if (++offset == page_size) page++, offset = 0;
    }
}

// Rows of n tokens that were coded along the tokens, a channel at a time.
template <typename T, typename Reader>
void rows_of_groups(const Side &s, const int32_t *table, int64_t page_size, int64_t kv_heads, int64_t head, int64_t dim,
                    int64_t key, int n, T *rows, Reader) {
    const int64_t bytes = s.bytes(dim), step = s.group, channel = step * s.bits / 8, units = page_size / step;
    const bool wide = dim % 16 == 0 && step % 16 == 0;
    for (int j = 0; j < n; j += wide ? 16 : 1) {
        const int64_t token = key + j, page = token / page_size, offset = token - page * page_size;
        const int64_t at = (table[page] * units + offset / step) * kv_heads + head, inside = offset % step;
        const uint8_t *run = s.codes + at * bytes;
        if (!wide) {
            for (int64_t d = 0; d < dim; d++) {
                const float product = code_at(s, run + d * channel, inside, Reader{}) * number(s.scale, s.scale_kind, at * dim + d);
                put1(rows + j * dim + d, product + (s.zero ? number(s.zero, s.scale_kind, at * dim + d) : 0.0f));
            }
            continue;
        }
        for (int64_t d = 0; d < dim; d += 16) {
            __m512i r[16];
            for (int i = 0; i < 16; i++) r[i] = _mm512_castps_si512(Reader::load(run + (d + i) * channel, inside));
            transpose(r);
            const __m512 scale = numbers16(s.scale, s.scale_kind, at * dim + d);
            const __m512 zero = s.zero ? numbers16(s.zero, s.scale_kind, at * dim + d) : _mm512_setzero_ps();
            for (int i = 0; i < 16; i++)
                put(rows + (j + i) * dim + d, _mm512_add_ps(_mm512_mul_ps(_mm512_castsi512_ps(r[i]), scale), zero));
        }
    }
}

// Sixteen keys' elements d and d + 1 to where ``load_keys`` of blocks.h would put them.
inline void put_keys(float *k, __m512 a, __m512 b) { _mm512_storeu_ps(k, a), _mm512_storeu_ps(k + BLOCK, b); }
inline void put_keys(uint16_t *k, __m512 a, __m512 b) {
    alignas(64) static constexpr uint16_t ZIP[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    _mm512_storeu_si512(k, _mm512_permutexvar_epi16(_mm512_load_si512(ZIP), (__m512i)_mm512_cvtne2ps_pbh(b, a)));
}

// Keys of a block that were coded along the tokens: a channel's codes lie side by side, as its keys do for the registers.
template <typename T, typename Reader>
void keys_of_groups(const Side &s, const int32_t *table, int64_t page_size, int64_t kv_heads, int64_t head, int64_t dim,
                    int64_t key, int n, T *k, Reader) {
    const int64_t bytes = s.bytes(dim), step = s.group, channel = step * s.bits / 8, units = page_size / step;
    alignas(64) float scale[256], zero[256];
    for (int j = 0; j < n; j += 16) {
        const int64_t token = key + j, page = token / page_size, offset = token - page * page_size, inside = offset % step;
        const int64_t at = (table[page] * units + offset / step) * kv_heads + head;
        const uint8_t *run = s.codes + at * bytes;
        if (!j || !inside)
            for (int64_t d = 0; d < dim; d += 16) {
                _mm512_store_ps(scale + d, numbers16(s.scale, s.scale_kind, at * dim + d));
                _mm512_store_ps(zero + d, s.zero ? numbers16(s.zero, s.scale_kind, at * dim + d) : _mm512_setzero_ps());
            }
        const auto numbers = [&](int64_t d) {
            const __m512 product = _mm512_mul_ps(Reader::load(run + d * channel, inside), _mm512_set1_ps(scale[d]));
            return _mm512_add_ps(product, _mm512_set1_ps(zero[d]));
        };
        for (int64_t d = 0; d < dim; d += 2) put_keys(k + d * BLOCK + j * Kind<T>::STEP, numbers(d), numbers(d + 1));
    }
}

template <typename T>
bool coded_rows(const Step<T> &s, int side, const Item &item, int64_t key, int n, const int64_t *at, T *rows, T *keys,
                Factors &factors) {
    const Side &from = *s.sides[side];
    const int32_t *table = s.tables + item.sequence * s.table_width;
    factors.groups = 0;
    bool straight = false;
    with_reader(from, [&](auto reader) {
        if (scales_wait(from, s.dim))
            straight = codes_of_tokens<decltype(reader)>(from, at, n, s.dim, rows, keys, factors);
        else if (keys && from.along_tokens && from.group % 16 == 0 && s.dim % 16 == 0 && s.dim <= 256) {
            keys_of_groups(from, table, s.page_size, s.kv_heads, item.head, s.dim, key, n, keys, reader);
            straight = true;
        } else if (from.along_tokens)
            rows_of_groups(from, table, s.page_size, s.kv_heads, item.head, s.dim, key, n, rows, reader);
        else
            rows_of_tokens(from, table, s.page_size, s.kv_heads, item.head, s.dim, key, n, rows, reader);
    });
    return straight;
}

// Rows of tokens that are not seen as codes: from the tail, or of the step itself; zeros before the first of them.
template <typename T>
void exact_rows(const Step<T> &s, int side, const Item &item, int64_t key, int64_t first, int n, T *rows) {
    const int64_t *sequence = s.rows + 4 * item.sequence, start = sequence[2];
    for (int j = 0; j < n; j++) {
        T *to = rows + j * s.dim;
        const int64_t token = key + j;
        if (token < first)
            std::memset(to, 0, s.dim * sizeof(T));
        else if (token < start)
            std::memcpy(to, s.tails[side] + ((sequence[3] * s.tail + token % s.tail) * s.kv_heads + item.head) * s.dim,
                        s.dim * sizeof(T));
        else
            std::memcpy(to, s.fresh[side] + (sequence[0] + token - start) * s.fresh_row[side] + item.head * s.dim,
                        s.dim * sizeof(T));
    }
}

// Ask for a block of codes before it is wanted. (Inlined by force, see attention.cpp.)
template <typename T>
inline __attribute__((always_inline)) void fetch(const Step<T> &s, const Item &item, int64_t key, int64_t n) {
    const int32_t *table = s.tables + item.sequence * s.table_width;
    for (int side = 0; side < 2; side++) {
        const Side &from = *s.sides[side];
        const int64_t bytes = from.bytes(s.dim), step = from.step(), units = s.page_size / step;
        for (int64_t token = key; token < key + n; token += step) {
            const int64_t page = token / s.page_size, unit = (token - page * s.page_size) / step;
            const uint8_t *run = from.codes + ((table[page] * units + unit) * s.kv_heads + item.head) * bytes;
            for (int64_t b = 0; b < bytes; b += 64) _mm_prefetch(reinterpret_cast<const char *>(run + b), _MM_HINT_T1);
        }
    }
}

template <typename T>
struct Room : Scratch<T> {
    std::vector<T> rows;
    Factors keys, values;
    Folded all;
    std::vector<float> q_sums;  // of each query row, by group of the keys
};

// ``meet`` of blocks.h where scales have waited: scores are put together group by group, weights scaled for each.
template <int R, typename T>
void meet_codes(Room<T> &s, int64_t row, int64_t dim, float scale, int n, const uint64_t *sees) {
    using K = Kind<T>;
    const T *q = s.q.data() + row * dim;
    const int64_t key_groups = std::max<int64_t>(1, s.keys.groups), key_group = dim / key_groups;
    __m512 score[R][4];
    for (int r = 0; r < R; r++)
        for (int g = 0; g < 4; g++) score[r][g] = _mm512_setzero_ps();
    for (int64_t z = 0; z < key_groups; z++) {
        __m512 part[R][4];
        for (int r = 0; r < R; r++)
            for (int g = 0; g < 4; g++) part[r][g] = _mm512_setzero_ps();
        for (int64_t d = z * key_group; d < (z + 1) * key_group; d += K::STEP) {
            typename K::Vector keys[4];
            for (int g = 0; g < 4; g++) keys[g] = K::load(s.k.data() + d * BLOCK + 16 * g * K::STEP);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                const auto both = K::spread(q + r * dim + d);
                for (int g = 0; g < 4; g++) part[r][g] = K::add(part[r][g], keys[g], both);
            }
        }
        for (int r = 0; r < R; r++)
            for (int g = 0; g < 4; g++) {
                if (!s.keys.groups) {
                    score[r][g] = part[r][g];
                    continue;
                }
                const int64_t at = z * BLOCK + 16 * g;
                score[r][g] = _mm512_fmadd_ps(part[r][g], _mm512_loadu_ps(s.keys.scale.data() + at), score[r][g]);
                if (s.keys.zeros)
                    score[r][g] = _mm512_fmadd_ps(_mm512_loadu_ps(s.keys.zero.data() + at),
                                                  _mm512_set1_ps(s.q_sums[(row + r) * key_groups + z]), score[r][g]);
            }
    }
    float shrink[ROWS];
    __m512 weight[R][4];
    for (int r = 0; r < R; r++) shrink[r] = soften(s, row + r, sees[r], scale, score[r], weight[r]);
    const int64_t value_groups = std::max<int64_t>(1, s.values.groups), value_group = dim / value_groups, width = padded(dim);
    for (int64_t z = 0; z < value_groups; z++) {
        float offset[R] = {};
        for (int r = 0; r < R; r++) {
            __m512 part[4], zeros = _mm512_setzero_ps();
            for (int g = 0; g < 4; g++) {
                const int64_t at = z * BLOCK + 16 * g;
                part[g] = s.values.groups ? _mm512_mul_ps(weight[r][g], _mm512_loadu_ps(s.values.scale.data() + at)) : weight[r][g];
                if (s.values.groups && s.values.zeros)
                    zeros = _mm512_fmadd_ps(weight[r][g], _mm512_loadu_ps(s.values.zero.data() + at), zeros);
            }
            if (s.values.groups && s.values.zeros) offset[r] = _mm512_reduce_add_ps(zeros);
            for (int g = 0; g < 4; g += 2) K::store32(s.p.data() + r * BLOCK + 16 * g, part[g], part[g + 1]);
        }
        const int64_t from = z * value_group, to = z + 1 == value_groups ? width : from + value_group;
        weigh_all<R>(s, row, width, from, to, shrink, n);
        if (s.values.groups && s.values.zeros)
            for (int r = 0; r < R; r++)
                for (int64_t d = from; d < to; d += 16) {
                    float *sums = s.sums.data() + (row + r) * width + d;
                    _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_set1_ps(offset[r])));
                }
    }
}

template <typename T>
void work(const Step<T> &s, const Item &item, Room<T> &room) {
    const int64_t *sequence = s.rows + 4 * item.sequence;
    const int64_t group = s.heads / s.kv_heads, rows = item.queries(s), start = sequence[2];
    const int64_t width = padded(s.dim), end = item.end(s);
    room.fit(rows, s.dim);
    room.rows.resize(BLOCK * s.dim);
    room.all.begin(rows, width);
    for (int64_t row = 0; row < rows; row += group)
        std::memcpy(room.q.data() + row * s.dim, s.q + item.index_of(s, row) * s.dim, group * s.dim * sizeof(T));
    if (const int64_t groups = scales_wait(*s.sides[0], s.dim) ? s.sides[0]->groups(s.dim) : 0) {
        const int64_t size = s.dim / groups;
        room.q_sums.assign(rows * groups, 0.0f);
        for (int64_t i = 0; i < rows * s.dim; i += 16)
            room.q_sums[i / s.dim * groups + i % s.dim / size] += _mm512_reduce_add_ps(load16(room.q.data() + i));
    }
    const int64_t first_exact = s.coded(start + item.from), last_coded = s.coded(end - 1);
    int64_t at[BLOCK], where[BLOCK];
    const auto meet_rows = [&](int64_t key, int n, bool as_codes) {
        for (int64_t row = 0; row < rows; row += ROWS) {
            uint64_t seen[ROWS], any = 0;
            const int count = int(std::min<int64_t>(ROWS, rows - row));
            for (int r = 0; r < count; r++) {
                const int64_t place = start + item.from + (row + r) / group, border = s.coded(place);
                const int64_t from = s.window ? place + 1 - s.window : 0;
                seen[r] = as_codes ? between(from - key, border - key) : between(std::max(from, border) - key, place + 1 - key);
                any |= seen[r];
            }
            if (!(any & first64(n))) continue;
            switch (count) {
                case 1: meet_codes<1>(room, row, s.dim, s.scale, n, seen); break;
                case 2: meet_codes<2>(room, row, s.dim, s.scale, n, seen); break;
                case 3: meet_codes<3>(room, row, s.dim, s.scale, n, seen); break;
                default: meet_codes<4>(room, row, s.dim, s.scale, n, seen);
            }
        }
    };
    const auto lay_out = [&](int n, auto fill) {
        for (int j = 0; j < BLOCK; j++) at[j] = j < n ? j * s.dim : -1;
        if (!fill(0, room.rows.data(), room.k.data(), room.keys)) load_keys(room.rows.data(), at, s.dim, room.k.data());
        fill(1, room.rows.data(), nullptr, room.values);
        load_values(room.rows.data(), at, s.dim, room.v.data());
    };
    const int64_t first = item.part < 0 ? item.first(s) : std::max(item.first(s), item.part * PART);
    const int64_t last = item.part < 0 ? end : std::min(end, (item.part + 1) * PART);
    for (int64_t key = first; key < last; key += BLOCK) {
        if (key % PART == 0 && key > first) fold(room.all, room, rows, width), room.begin(rows, s.dim);
        const int n = int(std::min<int64_t>(BLOCK, last_coded - key)), all = int(std::min<int64_t>(BLOCK, end - key));
        if (n > 0) {
            find(s, item, key, n, where);
            fetch(s, item, key + BLOCK, std::clamp<int64_t>(last_coded - key - BLOCK, 0, BLOCK));
            lay_out(n, [&](int side, T *to, T *keys, Factors &factors) {
                return coded_rows(s, side, item, key, n, where, to, keys, factors);
            });
            meet_rows(key, n, true);
        }
        if (key + all > first_exact) {
            lay_out(all, [&](int side, T *to, T *, Factors &factors) {
                factors.groups = 0;
                exact_rows(s, side, item, key, first_exact, all, to);
                return false;
            });
            meet_rows(key, all, false);
        }
    }
    fold(room.all, room, rows, width);
    if (item.folded)
        std::memcpy(item.folded, room.all.rows.data(), rows * (width + 2) * sizeof(float));
    else
        for (int64_t row = 0; row < rows; row++)
            finish(room.all.rows.data() + row * (width + 2), width, s.out + item.index_of(s, row) * s.dim, s.dim);
}

template <typename T>
void attend(const Step<T> &step, int threads) {
    const int64_t tile = std::max<int64_t>(1, 96 / (step.heads / step.kv_heads));
    std::vector<Item> items;
    for (int64_t b = 0; b < step.sequences; b++)
        for (int64_t to = step.rows[4 * b + 1]; to > 0; to -= tile)  // the longest first
            for (int64_t h = 0; h < step.kv_heads; h++) items.push_back({b, std::max<int64_t>(0, to - tile), to, h});
    const Parts<Item> parts(items, 4 * threads, padded(step.dim), [&](const Item &item) {
        return Span{item.first(step) / PART, (item.end(step) - 1) / PART, item.queries(step)};
    });
    const std::vector<Item> &todo = parts.apart ? parts.items : items;
    const int64_t n = int64_t(todo.size());
#pragma omp parallel num_threads(threads)
    {
        static thread_local Room<T> room;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n; i++) work(step, todo[i], room);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < (parts.apart ? int64_t(items.size()) : 0); i++) parts.join(step, items[i], i, room.all);
    }
}

}  // namespace

extern "C" void kvedu_quantized_attention(int fp32, const void *q, void *out, const void *keys, const void *values, const void *k, const void *v,
                                          int64_t k_row, int64_t v_row, const void *k_tail, const void *v_tail,
                                          const int32_t *tables, const int64_t *rows, int64_t sequences,
                                          int64_t table_width, int64_t heads, int64_t kv_heads, int64_t dim,
                                          int64_t page_size, int64_t tail, int64_t residual, int64_t unit, int64_t window,
                                          float scale, int threads) {
    const auto run = [&](auto kind) {
        using T = decltype(kind);
        attend(Step<T>{(const T *)q, (T *)out, {(const Side *)keys, (const Side *)values}, {(const T *)k, (const T *)v},
                       {(const T *)k_tail, (const T *)v_tail}, {k_row, v_row}, tables, rows, sequences, table_width, heads,
                       kv_heads, dim, page_size, tail, residual, unit, window, scale * LOG2_E},
               threads);
    };
    if (fp32)
        run(float{});
    else
        run(uint16_t{});
}
