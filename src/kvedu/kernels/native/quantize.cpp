// Numbers to codes on the way into the pages: kernels/codes.py's encode, bit for bit, for the units that a step fills.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "codes.h"

namespace {

inline float wide(float x) { return x; }
inline float wide(uint16_t x) { return _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32(int32_t(x) << 16))); }

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

inline float of_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

enum Rounding { DOWN, UP, NEAREST };

// x in a 16-bit float, rounded as told and saturated; what it has become is given back in fp32.
float store(void *to, int64_t kind, int64_t i, float x, Rounding rounding) {
    if (kind == FP32) return static_cast<float *>(to)[i] = x;
    uint16_t bits;
    if (kind == FP16) {
        const __m512 one = _mm512_set1_ps(std::clamp(x, -65504.0f, 65504.0f));
        constexpr __mmask16 ALL = 0xffff;
        const __m256i half = rounding == DOWN ? _mm512_maskz_cvtps_ph(ALL, one, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
                             : rounding == UP ? _mm512_maskz_cvtps_ph(ALL, one, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)
                                              : _mm512_maskz_cvtps_ph(ALL, one, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        bits = uint16_t(_mm256_cvtsi256_si32(half));
    } else {
        const float most = of_bits(0x7f7f0000u);
        const uint32_t whole = bits_of(std::clamp(x, -most, most)), rest = whole & 0xffff;
        bits = uint16_t(whole >> 16);
        if (rounding == NEAREST)
            bits += rest > 0x8000 || (rest == 0x8000 && (bits & 1));
        else
            bits += rest && (rounding == DOWN) == bool(whole >> 31);  // away from 0 is down for negative numbers
    }
    static_cast<uint16_t *>(to)[i] = bits;
    return number(to, kind, i);
}

// Nearest 8-bit float of a number in its range; ties to even. MANTISSA bits, exponent bias BIAS.
template <int MANTISSA, int BIAS>
uint8_t float8(float x) {
    const uint32_t sign = bits_of(x) >> 31, size = bits_of(x) & 0x7fffffffu;
    constexpr int CUT = 23 - MANTISSA;
    if (size > 0x7f800000u) return 0x7f;
    if (size < uint32_t(128 - BIAS) << 23) {  // below the smallest normal one: fp32's own addition rounds
        constexpr uint32_t magic = uint32_t(127 - BIAS + CUT + 1) << 23;
        return uint8_t(bits_of(of_bits(size) + of_bits(magic)) - magic) | uint8_t(sign << 7);
    }
    const uint32_t odd = size >> CUT & 1;
    return uint8_t((size - (uint32_t(127 - BIAS) << 23) + ((1u << (CUT - 1)) - 1) + odd) >> CUT) | uint8_t(sign << 7);
}

// Code a group of n numbers, distance stride apart, into codes first … of a run; scale and zero go to place i.
void code_group(const Side &s, const float *x, int64_t n, int64_t stride, uint8_t *run, int64_t first, int64_t i) {
    float low = INFINITY, high = -INFINITY, size = 0.0f;
    for (int64_t j = 0; j < n; j++) {
        const float y = x[j * stride];
        low = std::min(low, y), high = std::max(high, y), size = std::max(size, std::fabs(y));
    }
    const float largest = s.kind == E4M3 ? 448.0f : 57344.0f;
    if (s.kind != INTEGER) {
        const float scale = s.scale_kind ? store(s.scale, s.scale_kind, i, size / largest, UP) : 1.0f;
        for (int64_t j = 0; j < n; j++) {
            const float y = std::clamp(scale == 0.0f ? 0.0f : x[j * stride] / scale, -largest, largest);
            run[first + j] = s.kind == E4M3 ? float8<3, 7>(y) : float8<2, 15>(y);
        }
        return;
    }
    const float most = s.zero ? float((1 << s.bits) - 1) : float((1 << (s.bits - 1)) - 1);
    const float zero = s.zero ? store(s.zero, s.scale_kind, i, low, DOWN) : 0.0f;
    const float range = s.zero ? std::max(high - zero, 0.0f) : size;
    const float scale = store(s.scale, s.scale_kind, i, range / most, UP);
    const int64_t per_byte = 8 / s.bits;
    for (int64_t j = 0; j < n; j++) {
        const float y = scale == 0.0f ? 0.0f : (x[j * stride] - zero) / scale;
        const int code = int(std::clamp(std::nearbyint(y), s.zero ? 0.0f : -most, most)) & ((1 << s.bits) - 1);
        const int64_t at = first + j;
        run[at / per_byte] |= uint8_t(code << at % per_byte * s.bits);
    }
}

// One unit of one head: step rows of dim numbers.
void code_unit(const Side &s, float *x, int64_t dim, int64_t at, int64_t head) {
    const int64_t bytes = s.bytes(dim), groups = s.groups(dim);
    uint8_t *run = s.codes + at * bytes;
    std::memset(run, 0, bytes);
    for (int64_t i = 0; i < s.n_apart; i++) {
        float &y = x[s.channels[head * s.n_apart + i]];
        store(s.apart, s.scale_kind, at * s.n_apart + i, y, NEAREST);
        y = 0.0f;
    }
    if (s.along_tokens)
        for (int64_t d = 0; d < dim; d++) code_group(s, x + d, s.group, dim, run, d * s.group, at * dim + d);
    else {
        const int64_t group = groups ? s.group : dim;
        for (int64_t g = 0; g < dim / group; g++) code_group(s, x + g * group, group, 1, run, g * group, at * groups + g);
    }
}

template <typename T>
void code_all(const Side &s, const T *fresh, int64_t fresh_row, const T *tails, const int64_t *rows, const int64_t *units,
              int64_t count, int64_t kv_heads, int64_t dim, int64_t tail, int threads) {
    const int64_t step = s.step();
#pragma omp parallel for num_threads(threads) if (count * step > 16)
    for (int64_t i = 0; i < count; i++) {
        static thread_local std::vector<float> x;
        x.resize(step * dim);
        const int64_t unit = units[3 * i], *sequence = rows + 4 * units[3 * i + 1], first = units[3 * i + 2], start = sequence[2];
        for (int64_t head = 0; head < kv_heads; head++) {
            for (int64_t j = 0; j < step; j++) {
                const int64_t token = first + j;
                const T *from = token < start ? tails + ((sequence[3] * tail + token % tail) * kv_heads + head) * dim
                                              : fresh + (sequence[0] + token - start) * fresh_row + head * dim;
                for (int64_t d = 0; d < dim; d++) x[j * dim + d] = wide(from[d]);
            }
            code_unit(s, x.data(), dim, unit * kv_heads + head, head);
        }
    }
}

}  // namespace

// ``units`` [count, 3]: where a unit lies in the pages, whose it is (an entry of rows), and its first token.
extern "C" void kvedu_quantize(int fp32, const void *side, const void *fresh, int64_t fresh_row, const void *tails,
                               const int64_t *rows, const int64_t *units, int64_t count, int64_t kv_heads, int64_t dim,
                               int64_t tail, int threads) {
    const Side &s = *static_cast<const Side *>(side);
    if (fp32)
        code_all(s, (const float *)fresh, fresh_row, (const float *)tails, rows, units, count, kv_heads, dim, tail, threads);
    else
        code_all(s, (const uint16_t *)fresh, fresh_row, (const uint16_t *)tails, rows, units, count, kv_heads, dim, tail, threads);
}
