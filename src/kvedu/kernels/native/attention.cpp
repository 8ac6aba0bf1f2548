// Attention of ragged new queries over keys and values that lie in pages: bf16 or fp32 in and out, fp32 inside.
//
// One item of work is a tile of a sequence's new tokens with some KV heads, and all query heads of each: K
// and V are read once for all of them. Keys come in blocks (blocks.h) cut at multiples of 64 from the sequence's first
// token: a query's bits depend neither on the other queries of the step, nor on how its prompt was cut into chunks.
// New tokens see all earlier ones of their sequence; those of a token tree, of the new ones their ancestors only.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "blocks.h"

namespace {

template <typename T>
struct Step {
    const T *q, *k, *v;
    T *out;
    const int32_t *tables;  // [sequences, pages]
    const int64_t *rows;    // [sequences, 3]: first row in q, new tokens, committed tokens
    const uint64_t *family;  // [rows of q, words]: bit i for new token i of the sequence; all 0: no tree. Null: none is
    int64_t words, sequences, table_width, heads, kv_heads, dim, page_size, page_stride, token_stride, head_stride, window;
    float scale;
};

struct Item {
    int64_t sequence, from, to;  // new tokens from .. to - 1
    int64_t head, heads;         // KV heads head .. head + heads - 1
    int64_t part = -1;           // one part of its keys (blocks.h), or all of them
    float *folded = nullptr;     // where one part's rows go

    // Query rows: those of the first head, those of the second …; and where one lies among all queries of the step.
    template <typename T>
    int64_t queries(const Step<T> &s) const { return heads * (to - from) * (s.heads / s.kv_heads); }

    template <typename T>
    int64_t index_of(const Step<T> &s, int64_t row) const {
        const int64_t group = s.heads / s.kv_heads, rows = (to - from) * group, h = row / rows;
        row -= h * rows;
        return (s.rows[3 * sequence] + from + row / group) * s.heads + (head + h) * group + row % group;
    }
};

// Where a block's tokens lie, in elements from the first page; -1 after the last.
template <typename T>
void find(const Step<T> &s, const Item &item, int64_t start, int n, int64_t at[BLOCK]) {
    const int32_t *table = s.tables + item.sequence * s.table_width;
    int64_t page = start / s.page_size, offset = start - page * s.page_size;
    for (int j = 0; j < n; j++) {
        at[j] = table[page] * s.page_stride + offset * s.token_stride + item.head * s.head_stride;
        if (++offset == s.page_size) page++, offset = 0;
    }
    std::fill(at + n, at + BLOCK, -1);
}

// Ask for a block before it is wanted, all heads of the item, in order of memory where they lie side by side.
// (Inlined by force: GCC takes a function that only prefetches for one without effect, and drops the calls.)
template <typename T>
inline __attribute__((always_inline)) void fetch(const Step<T> &s, const T *pages, const int64_t at[BLOCK], int64_t heads) {
    for (int j = 0; j < BLOCK && at[j] >= 0; j++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t d = 0; d < s.dim; d += 64 / sizeof(T))
                _mm_prefetch(reinterpret_cast<const char *>(pages + at[j] + h * s.head_stride + d), _MM_HINT_T1);
}

// One past the last key that an item sees, and the first block that it meets.
template <typename T>
int64_t end_of(const Step<T> &s, const Item &item) { return s.rows[3 * item.sequence + 2] + item.to; }

// The new tokens on the path to new token t of a tree, itself included; null where it belongs to none.
template <typename T>
const uint64_t *path_of(const Step<T> &s, int64_t sequence, int64_t t) {
    const uint64_t *path = s.family + (s.rows[3 * sequence] + t) * s.words;
    return s.family && std::any_of(path, path + s.words, [](uint64_t word) { return word != 0; }) ? path : nullptr;
}

template <typename T>
int64_t first_of(const Step<T> &s, const Item &item) {
    if (!s.window) return 0;
    const int64_t above = path_of(s, item.sequence, item.from) ? 0 : item.from;  // a tree's tokens may all hang from the last
    return std::max<int64_t>(0, s.rows[3 * item.sequence + 2] + above + 1 - s.window) / BLOCK * BLOCK;
}

// Which of the 64 keys from ``key`` on new token t sees: a bit for each.
template <typename T>
uint64_t sees(const Step<T> &s, int64_t sequence, int64_t t, int64_t key) {
    const int64_t start = s.rows[3 * sequence + 2], shift = key - start;
    const uint64_t *path = path_of(s, sequence, t);
    if (!path) {
        const int64_t high = start + t + 1 - key;
        return between(s.window ? high - s.window : 0, high);
    }
    int64_t depth = 0;  // of a tree's token, which is its position; where a window has cut its path, the window
    for (int64_t w = 0; w < s.words; w++) depth += __builtin_popcountll(path[w]);
    const uint64_t old = between(s.window ? depth - s.window - shift : 0, -shift);
    if (shift < 0) return old | (shift > -BLOCK ? path[0] << -shift : 0);
    const int64_t w = shift / BLOCK, bits = shift % BLOCK;
    return (w < s.words ? path[w] >> bits : 0) | (bits && w + 1 < s.words ? path[w + 1] << (BLOCK - bits) : 0);
}

// The first and one past the last key of an item or of its part.
template <typename T>
int64_t low_of(const Step<T> &s, const Item &item) { return std::max(first_of(s, item), std::max<int64_t>(0, item.part) * PART); }

template <typename T>
int64_t high_of(const Step<T> &s, const Item &item) {
    return item.part < 0 ? end_of(s, item) : std::min(end_of(s, item), (item.part + 1) * PART);
}

// Ask for the first block of an item.
template <typename T>
inline __attribute__((always_inline)) void begin(const Step<T> &s, const Item &item) {
    int64_t at[BLOCK];
    const int64_t key = low_of(s, item);
    find(s, item, key, int(std::min<int64_t>(BLOCK, high_of(s, item) - key)), at);
    fetch(s, s.k, at, item.heads), fetch(s, s.v, at, item.heads);
}

template <typename T>
struct Room : Scratch<T> {
    Folded all;
};

template <typename T>
void work(const Step<T> &s, const Item &item, Room<T> &room) {
    const int64_t group = s.heads / s.kv_heads, rows = (item.to - item.from) * group;  // of each head
    const int64_t width = padded(s.dim), queries = item.queries(s);
    room.fit(queries, s.dim);
    room.all.begin(queries, width);
    for (int64_t row = 0; row < queries; row += group)
        std::memcpy(room.q.data() + row * s.dim, s.q + item.index_of(s, row) * s.dim, group * s.dim * sizeof(T));
    const int64_t low = low_of(s, item), high = high_of(s, item);
    for (int64_t key = low; key < high; key += BLOCK) {
        if (key % PART == 0 && key > low) fold(room.all, room, queries, width), room.begin(queries, s.dim);
        const int n = int(std::min<int64_t>(BLOCK, high - key));
        int64_t at[BLOCK], next[BLOCK];
        find(s, item, key, n, at);
        find(s, item, key + BLOCK, int(std::clamp<int64_t>(high - key - BLOCK, 0, BLOCK)), next);
        fetch(s, s.k, next, item.heads), fetch(s, s.v, next, item.heads);
        for (int64_t h = 0; h < item.heads; h++) {
            const T *k = s.k + h * s.head_stride, *v = s.v + h * s.head_stride;
            load_keys(k, at, s.dim, room.k.data());
            load_values(v, at, s.dim, room.v.data());
            for (int64_t row = 0; row < rows; row += ROWS) {
                uint64_t seen[ROWS], any = 0;
                const int count = int(std::min<int64_t>(ROWS, rows - row));
                for (int r = 0; r < count; r++) any |= seen[r] = sees(s, item.sequence, item.from + (row + r) / group, key);
                if (!(any & first64(n))) continue;
                switch (count) {
                    case 1: meet<1>(room, h * rows + row, s.dim, s.scale, n, seen); break;
                    case 2: meet<2>(room, h * rows + row, s.dim, s.scale, n, seen); break;
                    case 3: meet<3>(room, h * rows + row, s.dim, s.scale, n, seen); break;
                    default: meet<4>(room, h * rows + row, s.dim, s.scale, n, seen);
                }
            }
        }
    }
    fold(room.all, room, queries, width);
    if (item.folded)
        std::memcpy(item.folded, room.all.rows.data(), queries * (width + 2) * sizeof(float));
    else
        for (int64_t row = 0; row < queries; row++)
            finish(room.all.rows.data() + row * (width + 2), width, s.out + item.index_of(s, row) * s.dim, s.dim);
}

template <typename T>
void attend(const Step<T> &step, int threads) {
    // All KV heads of a token lie side by side, so an item takes them all where there are items enough.
    const int64_t tile = std::max<int64_t>(1, 96 / (step.heads / step.kv_heads));
    int64_t tiles = 0;
    for (int64_t b = 0; b < step.sequences; b++) tiles += (step.rows[3 * b + 1] + tile - 1) / tile;
    const int64_t together = tiles >= 4 * threads ? step.kv_heads : 1;
    std::vector<Item> items;
    for (int64_t b = 0; b < step.sequences; b++)
        for (int64_t to = step.rows[3 * b + 1]; to > 0; to -= tile)  // the longest first
            for (int64_t h = 0; h < step.kv_heads; h += together)
                items.push_back({b, std::max<int64_t>(0, to - tile), to, h, together});
    const Parts<Item> parts(items, 4 * threads, padded(step.dim), [&](const Item &item) {
        return Span{first_of(step, item) / PART, (end_of(step, item) - 1) / PART, item.queries(step)};
    });
    const std::vector<Item> &todo = parts.apart ? parts.items : items;
    const int64_t n = int64_t(todo.size());
#pragma omp parallel num_threads(threads)
    {
        static thread_local Room<T> room;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n; i++) {
            if (i + threads < n) begin(step, todo[i + threads]);  // the likely next of this thread
            work(step, todo[i], room);
        }
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < (parts.apart ? int64_t(items.size()) : 0); i++) parts.join(step, items[i], i, room.all);
    }
}

}  // namespace

extern "C" void kvedu_attention(int fp32, const void *q, const void *k, const void *v, void *out, const int32_t *tables,
                                const int64_t *rows, const uint64_t *family, int64_t words, int64_t sequences,
                                int64_t table_width, int64_t heads, int64_t kv_heads, int64_t dim, int64_t page_size,
                                int64_t page_stride, int64_t token_stride, int64_t head_stride, int64_t window, float scale,
                                int threads) {
    const auto run = [&](auto kind) {
        using T = decltype(kind);
        attend(Step<T>{(const T *)q, (const T *)k, (const T *)v, (T *)out, tables, rows, family, words, sequences,
                       table_width, heads, kv_heads, dim, page_size, page_stride, token_stride, head_stride, window,
                       scale * LOG2_E},
               threads);
    };
    if (fp32)
        run(float{});
    else
        run(uint16_t{});
}
