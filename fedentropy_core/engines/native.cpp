// The paper's CNN on a CPU: a device's whole local training in one call, and evaluation.
//
// LAYOUT. Activations lie as [channel][row][column][sample], the samples of a batch innermost. The columns of a
// row and their samples thus form one long axis of columns × samples numbers, and shifting an image by one column
// is shifting this axis by `samples`. Every inner loop runs over it in whole machine vectors, so a batch of 50
// wastes no lanes and no layer needs a special case for its channel count. Rows are a little longer than their
// contents: a vector that starts inside a row may run past its end. What stands there (and, in the fully connected
// layers, beyond the last sample) is finite but meaningless; it is only ever computed with itself or multiplied by
// a gradient that is zero there.
//
// TILING. Convolutions and matrix products keep a tile of outputs × vectors in registers (6 × 4 or 8 × 3 where
// there are 32 registers) and run through all inputs of that tile, so that each loaded number is used many times.
// Convolution and pooling are fused by pairs of rows: the unpooled activations, the largest array of the network,
// never exist as a whole, and a batch of 50 stays within a core's second-level cache. Pooling remembers which of
// its four inputs won; the backward pass needs nothing else.
//
// THE SAME BITS ON ANY CPU. Results do not depend on the instruction set, the compiler or the number of threads:
//  - Each number is accumulated in one order, written here and not chosen by a compiler: -ffp-contract=off and
//    no -ffast-math. (Contraction left to the compiler is no option: GCC, tuned for some CPUs, splits chains of
//    fused operations again.)
//  - A multiplication followed by an addition is fused where `fma` is written and nowhere else. That function is
//    the only one that names instructions, because GCC has no vector form of it that is portable.
//  - Sums along the sample axis (weight gradients) are kept in a fixed number of partial sums, LANES, whatever
//    the width of a machine vector, and then added by a fixed tree. Every other sum runs over channels or
//    features, one term after the other, so the width of a vector and the size of a tile do not touch it.
//  - exp and log are ours; +, −, ×, ÷ and √ are exact to rounding on every machine (IEEE 754).
// The scalar type is a template parameter: float is the engine, double exists to be compared with float64 PyTorch.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__x86_64__) && !defined(__FMA__)
#error "the native engine needs a CPU with fused multiply-add (x86-64-v3 or newer)"
#endif

namespace {

// ------------------------------------------------------------------------------------------------ vectors

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
#if defined(__x86_64__) && !defined(__AVX512F__)
constexpr bool MANY_REGISTERS = false;  // 16 vector registers
#else
constexpr bool MANY_REGISTERS = true;  // 32
#endif

#define INLINE inline __attribute__((always_inline))

template <class S>
struct Types;
template <>
struct Types<float> {
    typedef float Vec __attribute__((vector_size(VECTOR_BYTES)));
    typedef int32_t Integer;
    typedef Integer Int __attribute__((vector_size(VECTOR_BYTES)));
};
template <>
struct Types<double> {
    typedef double Vec __attribute__((vector_size(VECTOR_BYTES)));
    typedef int64_t Integer;
    typedef Integer Int __attribute__((vector_size(VECTOR_BYTES)));
};
template <class S>
using Vec = typename Types<S>::Vec;
template <class S>
using Int = typename Types<S>::Int;
template <class S>
using Integer = typename Types<S>::Integer;

template <class S>
constexpr int WIDTH = VECTOR_BYTES / int(sizeof(S));  // numbers in a machine vector
template <class S>
constexpr int LANES = 64 / int(sizeof(S));  // partial sums of a reduction: 16 floats or 8 doubles on every machine
template <class S>
constexpr int PARTS = LANES<S> / WIDTH<S>;  // machine vectors that hold them

/// a·b + c, rounded once.
INLINE Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(__AVX512F__)
    return Vec<float>(_mm512_fmadd_ps(a, b, c));
#elif defined(__FMA__)
    return Vec<float>(_mm256_fmadd_ps(a, b, c));
#elif defined(__aarch64__)
    return Vec<float>(vfmaq_f32(c, a, b));
#else
    for (int i = 0; i < WIDTH<float>; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}
INLINE Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(__AVX512F__)
    return Vec<double>(_mm512_fmadd_pd(a, b, c));
#elif defined(__FMA__)
    return Vec<double>(_mm256_fmadd_pd(a, b, c));
#elif defined(__aarch64__)
    return Vec<double>(vfmaq_f64(c, a, b));
#else
    for (int i = 0; i < WIDTH<double>; i++) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
#endif
}

template <class S>
INLINE Vec<S> load(const S* p) {
    Vec<S> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <class S>
INLINE void store(S* p, Vec<S> v) {
    std::memcpy(p, &v, sizeof v);
}
template <class S>
INLINE void store_some(S* p, Vec<S> v, long count) {
    if (count >= WIDTH<S>) return store(p, v);
    for (long i = 0; i < count; i++) p[i] = v[i];
}
template <class S>
INLINE Vec<S> fill(S value) {
    return value - Vec<S>{};  // not +: −0 + 0 would be +0
}
template <class S>
INLINE Vec<S> max(Vec<S> a, Vec<S> b) {
    return a > b ? a : b;
}
template <class S>
INLINE Vec<S> square_root(Vec<S> v) {
    for (int i = 0; i < WIDTH<S>; i++) v[i] = sizeof(S) == 4 ? __builtin_sqrtf(v[i]) : __builtin_sqrt(v[i]);
    return v;
}

/// The sum of LANES partial sums as a fixed tree: halves are added until one number is left.
template <class S>
INLINE S sum_lanes(const S* partial) {
    S sums[LANES<S>];
    std::memcpy(sums, partial, sizeof sums);
    for (int half = LANES<S> / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    return sums[0];
}

// ------------------------------------------------------------------------------------------------ exp and log

template <class S>
struct Float;
template <>
struct Float<float> {
    static constexpr int MANTISSA = 23, BIAS = 127, EXP_TERMS = 7, LOG_TERMS = 5;
    static constexpr float EXP_MIN = -87.0f, EXP_MAX = 88.0f;
    static constexpr float ROUND = 0x1.8p23f;  // x + ROUND − ROUND is x rounded to a whole number
    static constexpr float LN2_HIGH = 0x1.62e4p-1f, LN2_LOW = 0x1.7f7d1cp-20f;
};
template <>
struct Float<double> {
    static constexpr int MANTISSA = 52, BIAS = 1023, EXP_TERMS = 13, LOG_TERMS = 11;
    static constexpr double EXP_MIN = -708.0, EXP_MAX = 709.0;
    static constexpr double ROUND = 0x1.8p52;
    static constexpr double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;
};

/// eˣ = 2ᵏ·eʳ with k = round(x / ln 2), |r| ≤ ln 2 / 2, eʳ by its Taylor series.
/// Within 2 units in the last place for EXP_MIN ≤ x ≤ EXP_MAX; outside, x counts as the nearer bound.
template <class S>
Vec<S> exp(Vec<S> x) {
    using F = Float<S>;
    x = x < fill<S>(F::EXP_MIN) ? fill<S>(F::EXP_MIN) : x;
    x = x > fill<S>(F::EXP_MAX) ? fill<S>(F::EXP_MAX) : x;
    const Vec<S> shifted = fma(x, fill<S>(S(1.4426950408889634)), fill<S>(F::ROUND));
    const Vec<S> k = shifted - F::ROUND;
    const Vec<S> r = fma(k, fill<S>(-F::LN2_LOW), fma(k, fill<S>(-F::LN2_HIGH), x));

    double inverse_factorial[F::EXP_TERMS + 1] = {1.0};
    for (int i = 1; i <= F::EXP_TERMS; i++) inverse_factorial[i] = inverse_factorial[i - 1] / i;
    Vec<S> series = fill<S>(S(inverse_factorial[F::EXP_TERMS]));
    for (int i = F::EXP_TERMS - 1; i >= 0; i--) series = fma(series, r, fill<S>(S(inverse_factorial[i])));

    // The low bits of `shifted` are those of ROUND plus k, so k needs no conversion to an integer.
    const Int<S> exponent = ((Int<S>)shifted - (Int<S>)fill<S>(F::ROUND) + F::BIAS) << F::MANTISSA;
    return series * (Vec<S>)exponent;
}

/// ln x = e·ln 2 + 2·artanh((m − 1)/(m + 1)) with x = 2ᵉ·m, √½ ≤ m < √2, artanh by its series.
/// For normal x > 0, within 2 units in the last place where |ln x| ≥ ½, else an absolute error below one unit of ½.
template <class S>
Vec<S> log(Vec<S> x) {
    using F = Float<S>;
    const Int<S> bits = (Int<S>)x, sqrt_half = (Int<S>)fill<S>(S(0.70710678118654752));
    const Int<S> e = (bits - sqrt_half) >> F::MANTISSA;
    const Vec<S> m = (Vec<S>)(bits - (e << F::MANTISSA));
    const Vec<S> power = __builtin_convertvector(e, Vec<S>);
    const Vec<S> s = (m - S(1)) / (m + S(1)), s2 = s * s;

    Vec<S> series = fill<S>(S(1.0 / (2 * F::LOG_TERMS - 1)));
    for (int i = F::LOG_TERMS - 1; i >= 1; i--) series = fma(series, s2, fill<S>(S(1.0 / (2 * i - 1))));
    return fma(power, fill<S>(F::LN2_HIGH), fma(S(2) * s, series, power * F::LN2_LOW));
}

// ------------------------------------------------------------------------------------------------ the network

constexpr int KERNEL = 5;
constexpr int TAPS = KERNEL * KERNEL;
constexpr int IMAGE_CHANNELS = 3, IMAGE_SIDE = 32, IMAGE_BYTES = IMAGE_CHANNELS * IMAGE_SIDE * IMAGE_SIDE;
constexpr long IMAGE_STRIDE = IMAGE_BYTES + 64;  // of gathered images: spreads them over all sets of the cache
constexpr int FC1 = 120, FC2 = 84;

/// A convolution with its register tiles. Tiles change the speed, never the result.
struct Conv1 {
    static constexpr int IN = IMAGE_CHANNELS, OUT = 6, SIDE = 28, POOLED = 14, KERNEL_SIZE = OUT * IN * TAPS;
    static constexpr int TILE_OUT = 6, TILE_VECTORS = MANY_REGISTERS ? 4 : 2;
    static constexpr int GRAD_TILE_OUT = VECTOR_BYTES == 64 ? 6 : 3, GRAD_TILE_TAPS = VECTOR_BYTES == 64 ? 4 : 2;
};
struct Conv2 {
    static constexpr int IN = 6, OUT = 16, SIDE = 10, POOLED = 5, KERNEL_SIZE = OUT * IN * TAPS;
    static constexpr int TILE_OUT = MANY_REGISTERS ? 8 : 4, TILE_VECTORS = 3;
    static constexpr int GRAD_TILE_OUT = VECTOR_BYTES == 64 ? 8 : 2, GRAD_TILE_TAPS = 3;
    static constexpr int BACK_TILE_OUT = IN, BACK_TILE_VECTORS = MANY_REGISTERS ? 4 : 2;
};
constexpr int FLAT = Conv2::OUT * Conv2::POOLED * Conv2::POOLED;
constexpr int FC_TILE_ROWS = 6, FC_TILE_VECTORS = MANY_REGISTERS ? 4 : 2;
constexpr int WIDEST_TILE = 4;  // vectors

/// Where each tensor starts in the flat vector (PyTorch's parameter order).
struct Offsets {
    static constexpr long conv1_w = 0, conv1_b = conv1_w + Conv1::KERNEL_SIZE, conv2_w = conv1_b + Conv1::OUT,
                          conv2_b = conv2_w + Conv2::KERNEL_SIZE, fc1_w = conv2_b + Conv2::OUT,
                          fc1_b = fc1_w + FC1 * FLAT, fc2_w = fc1_b + FC1, fc2_b = fc2_w + FC2 * FC1,
                          fc3_w = fc2_b + FC2;
    long fc3_b, count;
    explicit Offsets(int classes) : fc3_b(fc3_w + long(classes) * FC2), count(fc3_b + classes) {}
};

constexpr long round_up(long n, long unit) { return (n + unit - 1) / unit * unit; }

/// Distances between neighbours of a [channel][row][column][sample] array.
struct Grid {
    long channel, row, column;
};

/// The layout of a slab's arrays in the convolutional layers. `padded`: the batch's row length (see Batch).
template <class S>
struct Layout {
    int samples;
    Grid image;         // the input
    Grid conv1, conv2;  // a pair of rows before pooling
    Grid pool1;         // after pooling
    Grid pool2;         // part of the batch's array that fc1 reads: there each column is a row of its own
    Grid conv2_grad;    // all rows before pooling, with a margin of zeros between rows
    static constexpr long MARGIN = WIDEST_TILE * LANES<S>;

    Layout(int n, long padded) : samples(n) {
        image = whole(IMAGE_SIDE);
        conv1 = {2 * row(Conv1::SIDE), row(Conv1::SIDE), n};
        conv2 = {2 * row(Conv2::SIDE), row(Conv2::SIDE), n};
        pool1 = whole(Conv1::POOLED);
        pool2 = {Conv2::POOLED * Conv2::POOLED * padded, Conv2::POOLED * padded, padded};
        const long margined = round_up(long(Conv2::SIDE) * n, LANES<S>) + MARGIN;
        conv2_grad = {Conv2::SIDE * margined, margined, n};
    }

  private:
    long row(long columns) const { return round_up(columns * samples + LANES<S>, LANES<S>); }
    Grid whole(long side) const { return {side * row(side), row(side), samples}; }
};

/// A batch, cut for the convolutional layers into a slab of whole lanes and a slab of what is left over. In the first
/// every column starts at a cache line, so no load is split over two; with 50 samples that is worth a third.
template <class S>
struct Batch {
    int samples, whole;
    long padded;  // samples in whole groups of LANES: the row length of the fully connected layers
    Layout<S> slab[2];

    explicit Batch(int n)
        : samples(n), whole(n / LANES<S> * LANES<S>), padded(round_up(n, LANES<S>)),
          slab{{whole, padded}, {n - whole, padded}} {}
    int first(int i) const { return i == 0 ? 0 : whole; }  // the slab's first sample
};

/// A zeroed, cache-line aligned array with room for a vector beyond its end.
template <class T>
class Array {
  public:
    explicit Array(long count) : data(allocate(round_up(count * long(sizeof(T)) + 64, 64))) {}
    ~Array() { std::free(data); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    operator T*() const { return data; }
    T* const data;

  private:
    static T* allocate(size_t bytes) {
        void* memory = std::aligned_alloc(64, bytes);
        if (!memory) throw std::bad_alloc();
        return static_cast<T*>(std::memset(memory, 0, bytes));
    }
};

// ------------------------------------------------------------------------------------------------ input

/// A row of 32 pixels in reverse, eight at a time.
INLINE void mirror_row(const uint8_t* from, uint8_t* to) {
    for (int i = 0; i < IMAGE_SIDE; i += 8) {
        uint64_t eight;
        std::memcpy(&eight, from + IMAGE_SIDE - 8 - i, 8);
        eight = __builtin_bswap64(eight);
        std::memcpy(to + i, &eight, 8);
    }
}

/// x[channel][row][column][sample] = pixel_values[channel][byte], mirrored left-right where asked.
template <class S>
void read_images(const uint8_t* const* images, const uint8_t* mirror, const float* pixel_values, uint8_t* bytes, S* x,
                 const Layout<S>& layout) {
    // First the bytes side by side, mirrored, so that the images are a fixed distance apart.
    for (int n = 0; n < layout.samples; n++) {
        uint8_t* to = bytes + n * IMAGE_STRIDE;
        if (!mirror || !mirror[n])
            std::memcpy(to, images[n], IMAGE_BYTES);
        else
            for (int row = 0; row < IMAGE_BYTES; row += IMAGE_SIDE) mirror_row(images[n] + row, to + row);
    }
    for (int channel = 0; channel < IMAGE_CHANNELS; channel++) {
        const float* values = pixel_values + channel * 256;
        for (int row = 0; row < IMAGE_SIDE; row++)
            for (int column = 0; column < IMAGE_SIDE; column++) {
                const uint8_t* from = bytes + (channel * IMAGE_SIDE + row) * IMAGE_SIDE + column;
                S* to = x + channel * layout.image.channel + row * layout.image.row + column * layout.image.column;
#pragma GCC unroll 8
                for (int n = 0; n < layout.samples; n++) to[n] = S(values[from[n * IMAGE_STRIDE]]);
            }
    }
}

// ------------------------------------------------------------------------------------------------ convolution

/// What one output tile of a convolution reads: the input for output position 0 and tap (channel, kh, kw) is at
/// origin + channel·step.channel + kh·step.row + kw·step.column. Negative steps give the transposed convolution.
template <class S>
struct TileInput {
    const S* origin;
    Grid step;
    int channels, first_row, end_row, first_column, end_column;  // taps outside would meet only zeros
};

/// out[o][v] = bias[o] + Σ over channels and taps of kernel[channel][kh][kw][o] · input, for OUT outputs × VECTORS.
template <class S, int OUT, int VECTORS>
INLINE void conv_tile(const TileInput<S>& in, const S* kernel, int outputs, const S* bias, S* out, long out_channel) {
    Vec<S> sum[OUT][VECTORS];
    for (int o = 0; o < OUT; o++)
        for (int v = 0; v < VECTORS; v++) sum[o][v] = bias ? fill<S>(bias[o]) : Vec<S>{};
    for (int channel = 0; channel < in.channels; channel++)
        for (int kh = in.first_row; kh < in.end_row; kh++) {
            const S* x = in.origin + channel * in.step.channel + kh * in.step.row + in.first_column * in.step.column;
            const S* w = kernel + ((channel * KERNEL + kh) * KERNEL + in.first_column) * outputs;
            for (int kw = in.first_column; kw < in.end_column; kw++, x += in.step.column, w += outputs) {
                Vec<S> input[VECTORS];
                for (int v = 0; v < VECTORS; v++) input[v] = load(x + v * WIDTH<S>);
                for (int o = 0; o < OUT; o++)
                    for (int v = 0; v < VECTORS; v++) sum[o][v] = fma(input[v], fill<S>(w[o]), sum[o][v]);
            }
        }
    for (int o = 0; o < OUT; o++)
        for (int v = 0; v < VECTORS; v++) store(out + o * out_channel + v * WIDTH<S>, sum[o][v]);
}

/// All outputs of at most VECTORS vectors; `vectors` < VECTORS at the end of a row.
template <class S, int OUT, int VECTORS>
void conv_tiles(const TileInput<S>& in, const S* kernel, int outputs, const S* bias, S* out, long out_channel,
                long vectors) {
    if constexpr (VECTORS > 1)
        if (vectors < VECTORS)
            return conv_tiles<S, OUT, VECTORS - 1>(in, kernel, outputs, bias, out, out_channel, vectors);
    for (int o = 0; o < outputs; o += OUT)
        conv_tile<S, OUT, VECTORS>(in, kernel + o, outputs, bias ? bias + o : nullptr, out + o * out_channel,
                                   out_channel);
}

/// One row of y = bias + x ∗ kernel for all output channels; `x` points to the row's first input row.
template <class S, class Conv>
void conv_row(const S* x, Grid grid, const S* kernel, const S* bias, S* y, Grid y_grid) {
    const long vectors = round_up(Conv::SIDE * y_grid.column, WIDTH<S>) / WIDTH<S>;
    for (long v = 0; v < vectors; v += Conv::TILE_VECTORS) {
        const TileInput<S> in{x + v * WIDTH<S>, grid, Conv::IN, 0, KERNEL, 0, KERNEL};
        conv_tiles<S, Conv::TILE_OUT, Conv::TILE_VECTORS>(in, kernel, Conv::OUT, bias, y + v * WIDTH<S>, y_grid.channel,
                                                          vectors - v);
    }
}

/// dx[c][r][·] = Σ over outputs and taps of dy[o][r − kh][· − kw] · kernel[o][kh][kw][c] (the transposed convolution).
/// Rows of dy that do not exist are skipped, and so are taps that would only meet the zeros beside a row.
template <class S>
void conv2_input_gradient(const S* dy, const S* kernel, S* dx, const Layout<S>& layout) {
    const Grid dy_grid = layout.conv2_grad, dx_grid = layout.pool1;
    const long n = layout.samples, length = Conv2::SIDE * n;
    const long vectors = round_up(Conv1::POOLED * n, WIDTH<S>) / WIDTH<S>;
    constexpr int tile = Conv2::BACK_TILE_VECTORS;
    for (int row = 0; row < Conv1::POOLED; row++) {
        const int first_row = row < Conv2::SIDE ? 0 : row - Conv2::SIDE + 1, end_row = row < KERNEL ? row + 1 : KERNEL;
        for (long v = 0; v < vectors; v += tile) {
            const long start = v * WIDTH<S>, end = start + tile * WIDTH<S>;
            const int first_column = start < length ? 0 : int((start - length) / n) + 1;
            const int end_column = (end - 1) / n < KERNEL ? int((end - 1) / n) + 1 : KERNEL;
            const Grid back{dy_grid.channel, -dy_grid.row, -n};
            const TileInput<S> in{dy + row * dy_grid.row + start, back, Conv2::OUT, first_row, end_row, first_column,
                                  end_column};
            conv_tiles<S, Conv2::BACK_TILE_OUT, tile>(in, kernel, Conv2::IN, nullptr, dx + row * dx_grid.row + start,
                                                      dx_grid.channel, vectors - v);
        }
    }
}

/// The kernel's inputs of one tile of taps: where each begins, and how far its next row is.
template <class S, int COUNT>
struct TapInputs {
    const S* start[COUNT];
    long row[COUNT];
};

/// partial[o][tap] += dy[o] · input[tap], lane by lane over a pair of rows of `blocks` × LANES numbers.
template <class S, int OUT, int COUNT>
INLINE void kernel_gradient_tile(const TapInputs<S, COUNT>& taps, const S* dy, Grid dy_grid, long blocks, S* partial,
                                 long partial_out) {
    Vec<S> sum[OUT][COUNT][PARTS<S>];
    for (int o = 0; o < OUT; o++)
        for (int t = 0; t < COUNT; t++)
            for (int p = 0; p < PARTS<S>; p++)
                sum[o][t][p] = load(partial + o * partial_out + t * LANES<S> + p * WIDTH<S>);
    for (int row = 0; row < 2; row++) {
        const S* x[COUNT];
        for (int t = 0; t < COUNT; t++) x[t] = taps.start[t] + row * taps.row[t];
        const S* d = dy + row * dy_grid.row;
        for (long i = 0; i < blocks * LANES<S>; i += LANES<S>)
            for (int p = 0; p < PARTS<S>; p++) {
                Vec<S> input[COUNT];
                for (int t = 0; t < COUNT; t++) input[t] = load(x[t] + i + p * WIDTH<S>);
                for (int o = 0; o < OUT; o++) {
                    const Vec<S> gradient = load(d + o * dy_grid.channel + i + p * WIDTH<S>);
                    for (int t = 0; t < COUNT; t++) sum[o][t][p] = fma(gradient, input[t], sum[o][t][p]);
                }
            }
    }
    for (int o = 0; o < OUT; o++)
        for (int t = 0; t < COUNT; t++)
            for (int p = 0; p < PARTS<S>; p++)
                store(partial + o * partial_out + t * LANES<S> + p * WIDTH<S>, sum[o][t][p]);
}

/// Taps first, first + 1, … of an input; the tap after the last is the bias, whose input is one everywhere.
template <class S, class Conv, int COUNT>
TapInputs<S, COUNT> tap_inputs(int first, const S* x, Grid grid, const S* ones) {
    TapInputs<S, COUNT> taps;
    for (int t = 0; t < COUNT; t++) {
        const int tap = first + t, channel = tap / TAPS, kh = tap % TAPS / KERNEL, kw = tap % KERNEL;
        const bool bias = tap == Conv::IN * TAPS;
        taps.start[t] = bias ? ones : x + channel * grid.channel + kh * grid.row + kw * grid.column;
        taps.row[t] = bias ? 0 : grid.row;
    }
    return taps;
}

/// dkernel[o][tap] += Σ over positions of dy[o] · input[tap] for a pair of rows, into partial[o][tap][lane].
template <class S, class Conv>
void kernel_gradient_rows(const S* x, Grid grid, const S* dy, Grid dy_grid, const S* ones, S* partial) {
    constexpr int taps = Conv::IN * TAPS + 1, tile = Conv::GRAD_TILE_TAPS, rest = taps % tile;
    const long blocks = round_up(Conv::SIDE * dy_grid.column, LANES<S>) / LANES<S>;
    for (int o = 0; o < Conv::OUT; o += Conv::GRAD_TILE_OUT) {
        const S* d = dy + o * dy_grid.channel;
        S* sums = partial + long(o) * taps * LANES<S>;
        for (int t = 0; t + tile <= taps; t += tile)
            kernel_gradient_tile<S, Conv::GRAD_TILE_OUT, tile>(tap_inputs<S, Conv, tile>(t, x, grid, ones), d, dy_grid,
                                                               blocks, sums + t * LANES<S>, taps * LANES<S>);
        if constexpr (rest > 0)
            kernel_gradient_tile<S, Conv::GRAD_TILE_OUT, rest>(
                tap_inputs<S, Conv, rest>(taps - rest, x, grid, ones), d, dy_grid, blocks,
                sums + (taps - rest) * LANES<S>, taps * LANES<S>);
    }
}

/// The sums of all lanes, as the gradients of kernel and bias.
template <class S, class Conv>
void finish_kernel_gradient(const S* partial, S* kernel_gradient, S* bias_gradient) {
    constexpr int taps = Conv::IN * TAPS;
    for (int o = 0; o < Conv::OUT; o++) {
        const S* sums = partial + long(o) * (taps + 1) * LANES<S>;
        for (int t = 0; t < taps; t++) kernel_gradient[o * taps + t] = sum_lanes(sums + t * LANES<S>);
        bias_gradient[o] = sum_lanes(sums + taps * LANES<S>);
    }
}

// ------------------------------------------------------------------------------------------------ pooling, ReLU

constexpr int NO_WINNER = 4;  // the ReLU is closed, no gradient passes

/// One pooled row: the maximum of 2 × 2 and of 0. The first of equal inputs wins, as in PyTorch.
template <class S, class Conv>
void pool_row(const S* rows, Grid grid, S* pooled, Grid out, Integer<S>* winner, int samples) {
    for (int channel = 0; channel < Conv::OUT; channel++)
        for (int column = 0; column < Conv::POOLED; column++) {
            const S* upper = rows + channel * grid.channel + 2 * column * grid.column;
            const S* lower = upper + grid.row;
            const long to = channel * out.channel + column * out.column;
            for (int n = 0; n < samples; n += WIDTH<S>) {
                const Vec<S> corner[4] = {load(upper + n), load(upper + samples + n), load(lower + n),
                                          load(lower + samples + n)};
                Vec<S> best = corner[0];
                Int<S> index = {};
                for (int i = 1; i < 4; i++) {
                    index = corner[i] > best ? Int<S>{} + i : index;
                    best = max<S>(corner[i], best);
                }
                store(pooled + to + n, max<S>(best, Vec<S>{}));
                if (winner) {
                    index = best > Vec<S>{} ? index : Int<S>{} + NO_WINNER;
                    std::memcpy(winner + to + n, &index, sizeof index);
                }
            }
        }
}

/// The gradient of a pair of rows: a pooled gradient goes to the winner, the other three get zero.
template <class S, class Conv>
void pool_row_backward(const S* pooled_gradient, const Integer<S>* winner, Grid out, S* rows, Grid grid, int samples) {
    for (int channel = 0; channel < Conv::OUT; channel++) {
        S* upper = rows + channel * grid.channel;
        S* lower = upper + grid.row;
        for (int column = 0; column < Conv::POOLED; column++)
            for (int side = 0; side < 2; side++)  // left, right: in rising order, as stores run into the next column
                for (int n = 0; n < samples; n += WIDTH<S>) {
                    const long from = channel * out.channel + column * out.column + n;
                    const long to = (2 * column + side) * grid.column + n;
                    Int<S> index;
                    std::memcpy(&index, winner + from, sizeof index);
                    const Vec<S> gradient = load(pooled_gradient + from);
                    store(upper + to, index == side ? gradient : Vec<S>{});
                    store(lower + to, index == 2 + side ? gradient : Vec<S>{});
                }
        const long length = Conv::SIDE * grid.column;
        std::memset(upper + length, 0, (grid.row - length) * sizeof(S));
        std::memset(lower + length, 0, (grid.row - length) * sizeof(S));
    }
}

/// pooled = ReLU(maxpool(bias + x ∗ kernel)), by pairs of rows.
template <class S, class Conv>
void conv_pool(const S* x, Grid grid, const S* kernel, const S* bias, S* rows, Grid rows_grid, S* pooled, Grid out,
               Integer<S>* winner, int samples) {
    for (int row = 0; row < Conv::POOLED; row++) {
        for (int half = 0; half < 2; half++)
            conv_row<S, Conv>(x + (2 * row + half) * grid.row, grid, kernel, bias, rows + half * rows_grid.row, rows_grid);
        pool_row<S, Conv>(rows, rows_grid, pooled + row * out.row, out, winner ? winner + row * out.row : nullptr,
                          samples);
    }
}

// ------------------------------------------------------------------------------------------------ fully connected

/// a[m·row + k·column]: a matrix, or its transpose by exchanging the two.
template <class S>
struct Matrix {
    const S* a;
    long row, column;
};

enum class After { Nothing, Relu, Gate };

/// c[m][n] = after(bias[m] + Σ_k a[m][k] · b[k][n]) for ROWS × VECTORS; Gate passes c where gate[m][n] > 0.
template <class S, After AFTER, int ROWS, int VECTORS>
INLINE void product_tile(Matrix<S> a, long inner, const S* b, long b_row, const S* bias, const S* gate, S* c,
                         long c_row, long columns) {
    Vec<S> sum[ROWS][VECTORS];
    for (int m = 0; m < ROWS; m++)
        for (int v = 0; v < VECTORS; v++) sum[m][v] = bias ? fill<S>(bias[m]) : Vec<S>{};
    for (long k = 0; k < inner; k++) {
        Vec<S> right[VECTORS];
        for (int v = 0; v < VECTORS; v++) right[v] = load(b + k * b_row + v * WIDTH<S>);
        for (int m = 0; m < ROWS; m++)
            for (int v = 0; v < VECTORS; v++)
                sum[m][v] = fma(right[v], fill<S>(a.a[m * a.row + k * a.column]), sum[m][v]);
    }
    for (int m = 0; m < ROWS; m++)
        for (int v = 0; v < VECTORS; v++) {
            const long at = m * c_row + v * WIDTH<S>;
            Vec<S> value = sum[m][v];
            if (AFTER == After::Relu) value = max<S>(value, Vec<S>{});
            if (AFTER == After::Gate) value = load(gate + at) > Vec<S>{} ? value : Vec<S>{};
            store_some(c + at, value, columns - v * WIDTH<S>);
        }
}

/// The rows of one tile of columns, in tiles of ROWS and then of ever fewer.
template <class S, After AFTER, int ROWS, int VECTORS>
void product_rows(Matrix<S> a, long rows, long inner, const S* b, long b_row, const S* bias, const S* gate, S* c,
                  long c_row, long columns) {
    for (; rows >= ROWS; rows -= ROWS) {
        product_tile<S, AFTER, ROWS, VECTORS>(a, inner, b, b_row, bias, gate, c, c_row, columns);
        a.a += ROWS * a.row, c += ROWS * c_row;
        if (bias) bias += ROWS;
        if (gate) gate += ROWS * c_row;
    }
    if constexpr (ROWS > 1)
        if (rows > 0)
            product_rows<S, AFTER, ROWS / 2, VECTORS>(a, rows, inner, b, b_row, bias, gate, c, c_row, columns);
}

/// c[m][n] = after(bias[m] + Σ_k a[m][k] · b[k][n]), k rising. Tiles of columns are the outer loop, so that those of b
/// stay in the first-level cache; the last tile is as narrow as it needs to be.
template <class S, After AFTER = After::Nothing, int VECTORS = FC_TILE_VECTORS>
void product(Matrix<S> a, long rows, long inner, const S* b, long b_row, const S* bias, const S* gate, S* c, long c_row,
             long columns) {
    constexpr long width = VECTORS * WIDTH<S>;
    for (; columns > width - WIDTH<S>; columns -= width) {
        product_rows<S, AFTER, FC_TILE_ROWS, VECTORS>(a, rows, inner, b, b_row, bias, gate, c, c_row, columns);
        b += width, c += width;
        if (gate) gate += width;
    }
    if constexpr (VECTORS > 1)
        if (columns > 0) product<S, AFTER, VECTORS - 1>(a, rows, inner, b, b_row, bias, gate, c, c_row, columns);
}

/// y[sample][feature] = x[feature][sample].
template <class S>
void transpose(const S* x, long features, const Batch<S>& batch, S* y, long y_row) {
    for (int n = 0; n < batch.samples; n++)
        for (long f = 0; f < features; f++) y[n * y_row + f] = x[f * batch.padded + n];
}

/// Gradients of y = W·x + b: dW = dy·xᵀ, db = Σ dy over the samples (dy is zero beyond the last).
template <class S>
void weight_gradient(const S* x, int inputs, const S* dy, int outputs, const Batch<S>& batch, S* transposed, S* dw,
                     S* db) {
    const long x_row = round_up(inputs, LANES<S>);
    transpose(x, inputs, batch, transposed, x_row);
    product<S>({dy, batch.padded, 1}, outputs, batch.samples, transposed, x_row, nullptr, nullptr, dw, inputs, inputs);
    for (int o = 0; o < outputs; o++) {
        S partial[LANES<S>] = {};
        for (long n = 0; n < batch.padded; n += LANES<S>)
            for (int lane = 0; lane < LANES<S>; lane++) partial[lane] += dy[o * batch.padded + n + lane];
        db[o] = sum_lanes(partial);
    }
}

// ------------------------------------------------------------------------------------------------ the model

/// What a slab's forward pass leaves for its backward pass.
template <class S>
struct SlabArrays {
    Array<S> x, pool1;
    Array<Integer<S>> winner1;
    explicit SlabArrays(const Layout<S>& layout)
        : x(IMAGE_CHANNELS * layout.image.channel), pool1(Conv1::OUT * layout.pool1.channel),
          winner1(Conv1::OUT * layout.pool1.channel) {}
};

/// A model's arrays for batches of up to `capacity` samples.
template <class S>
struct Workspace {
    int classes, capacity;
    Offsets at;
    Batch<S> full;                         // the largest batch
    Layout<S> widest;                      // a layout no slab exceeds
    SlabArrays<S> slab[2];
    Array<S> rows1, rows2;                 // a pair of rows: activations forward, gradients backward
    Array<S> pool2, hidden1, hidden2, logits;
    Array<Integer<S>> winner2;
    Array<S> d_logits, d_hidden2, d_hidden1, d_pool2, d_conv2, d_pool1;
    Array<S> partial1, partial2;           // partial sums of the kernels' gradients
    Array<S> transposed;
    Array<S> kernel1, kernel2, kernel2_back;  // packed
    Array<S> ones;                         // the bias's input
    Array<uint8_t> bytes;
    Array<const uint8_t*> sources;         // [sample]: where each image of the batch begins

    Workspace(int classes, int capacity)
        : classes(classes), capacity(capacity), at(classes), full(capacity),
          widest(capacity < LANES<S> ? LANES<S> : capacity, full.padded),
          slab{SlabArrays<S>(full.slab[0]), SlabArrays<S>(Layout<S>(LANES<S> - 1, full.padded))},
          rows1(Conv1::OUT * widest.conv1.channel), rows2(Conv2::OUT * widest.conv2.channel),
          pool2(FLAT * full.padded), hidden1(FC1 * full.padded), hidden2(FC2 * full.padded),
          logits(classes * full.padded), winner2(FLAT * full.padded), d_logits(classes * full.padded),
          d_hidden2(FC2 * full.padded), d_hidden1(FC1 * full.padded), d_pool2(FLAT * full.padded),
          d_conv2(Layout<S>::MARGIN + Conv2::OUT * widest.conv2_grad.channel),
          d_pool1(Conv1::OUT * widest.pool1.channel), partial1((Conv1::KERNEL_SIZE + Conv1::OUT) * LANES<S>),
          partial2((Conv2::KERNEL_SIZE + Conv2::OUT) * LANES<S>),
          transposed(capacity * round_up(FLAT, LANES<S>) + LANES<S> * WIDEST_TILE), kernel1(Conv1::KERNEL_SIZE),
          kernel2(Conv2::KERNEL_SIZE), kernel2_back(Conv2::KERNEL_SIZE), ones(widest.conv1.row),
          bytes(capacity * IMAGE_STRIDE), sources(capacity) {
        for (long i = 0; i < widest.conv1.row; i++) ones[i] = 1;
    }
};

/// Kernels as the tiles read them, outputs innermost: [in][tap][out], and [out][tap][in] for the way back.
template <class S>
void pack_kernels(const S* weights, Workspace<S>& ws) {
    for (int o = 0; o < Conv1::OUT; o++)
        for (int i = 0; i < Conv1::IN * TAPS; i++)
            ws.kernel1[i * Conv1::OUT + o] = weights[Offsets::conv1_w + o * Conv1::IN * TAPS + i];
    for (int o = 0; o < Conv2::OUT; o++)
        for (int c = 0; c < Conv2::IN; c++)
            for (int t = 0; t < TAPS; t++) {
                const S w = weights[Offsets::conv2_w + (o * Conv2::IN + c) * TAPS + t];
                ws.kernel2[(c * TAPS + t) * Conv2::OUT + o] = w;
                ws.kernel2_back[(o * TAPS + t) * Conv2::IN + c] = w;
            }
}

/// Reads the batch's images from ws.sources.
template <class S>
void read_batch(const uint8_t* mirror, const float* pixel_values, Workspace<S>& ws, const Batch<S>& batch) {
    for (int i = 0; i < 2; i++)
        read_images<S>(ws.sources + batch.first(i), mirror ? mirror + batch.first(i) : nullptr, pixel_values, ws.bytes,
                       ws.slab[i].x, batch.slab[i]);
}

/// hidden2 = the features z of the batch's images: the network up to and including fc2's ReLU.
template <class S>
void forward_features(const S* w, Workspace<S>& ws, const Batch<S>& batch) {
    for (int i = 0; i < 2; i++) {
        const Layout<S>& layout = batch.slab[i];
        const SlabArrays<S>& slab = ws.slab[i];
        conv_pool<S, Conv1>(slab.x, layout.image, ws.kernel1, w + Offsets::conv1_b, ws.rows1, layout.conv1, slab.pool1,
                            layout.pool1, slab.winner1, layout.samples);
        conv_pool<S, Conv2>(slab.pool1, layout.pool1, ws.kernel2, w + Offsets::conv2_b, ws.rows2, layout.conv2,
                            ws.pool2 + batch.first(i), layout.pool2, ws.winner2 + batch.first(i), layout.samples);
    }
    const long n = batch.padded;
    product<S, After::Relu>({w + Offsets::fc1_w, FLAT, 1}, FC1, FLAT, ws.pool2, n, w + Offsets::fc1_b, nullptr,
                            ws.hidden1, n, n);
    product<S, After::Relu>({w + Offsets::fc2_w, FC1, 1}, FC2, FC1, ws.hidden1, n, w + Offsets::fc2_b, nullptr,
                            ws.hidden2, n, n);
}

template <class S>
void forward(const S* w, Workspace<S>& ws, const Batch<S>& batch) {
    forward_features(w, ws, batch);
    product<S>({w + Offsets::fc3_w, FC2, 1}, ws.classes, FC2, ws.hidden2, batch.padded, w + ws.at.fc3_b, nullptr,
               ws.logits, batch.padded, batch.padded);
}

/// probability[c][n] = exp(logit[c] − m) / Σ exp(logit − m), m the largest; optionally m and the sum for each sample.
template <class S>
void softmax(const Workspace<S>& ws, const Batch<S>& batch, S* probability, S* largest = nullptr, S* total = nullptr) {
    for (long n = 0; n < batch.padded; n += WIDTH<S>) {
        Vec<S> top = load(ws.logits + n), sum = {};
        for (int c = 1; c < ws.classes; c++) top = max<S>(load(ws.logits + c * batch.padded + n), top);
        for (int c = 0; c < ws.classes; c++) {
            const Vec<S> e = exp<S>(load(ws.logits + c * batch.padded + n) - top);
            store(probability + c * batch.padded + n, e);
            sum += e;
        }
        for (int c = 0; c < ws.classes; c++) {
            S* p = probability + c * batch.padded + n;
            store(p, load(p) / sum);
        }
        if (largest) store(largest + n, top);
        if (total) store(total + n, sum);
    }
}

/// fc3, fc2, fc1: dW and db of each, and dx = Wᵀ·dy where x > 0, down to d_pool2; `extra` is added to dz (Moon's term).
template <class S>
void backward_fully_connected(const S* w, Workspace<S>& ws, const Batch<S>& batch, const S* extra, S* gradient) {
    const long n = batch.padded;
    weight_gradient<S>(ws.hidden2, FC2, ws.d_logits, ws.classes, batch, ws.transposed, gradient + Offsets::fc3_w,
                       gradient + ws.at.fc3_b);
    product<S, After::Gate>({w + Offsets::fc3_w, 1, FC2}, FC2, ws.classes, ws.d_logits, n, nullptr, ws.hidden2,
                            ws.d_hidden2, n, n);
    if (extra)
        for (long i = 0; i < FC2 * n; i += WIDTH<S>) store(ws.d_hidden2 + i, load(ws.d_hidden2 + i) + load(extra + i));
    weight_gradient<S>(ws.hidden1, FC1, ws.d_hidden2, FC2, batch, ws.transposed, gradient + Offsets::fc2_w,
                       gradient + Offsets::fc2_b);
    product<S, After::Gate>({w + Offsets::fc2_w, 1, FC1}, FC1, FC2, ws.d_hidden2, n, nullptr, ws.hidden1, ws.d_hidden1,
                            n, n);
    weight_gradient<S>(ws.pool2, FLAT, ws.d_hidden1, FC1, batch, ws.transposed, gradient + Offsets::fc1_w,
                       gradient + Offsets::fc1_b);
    product<S>({w + Offsets::fc1_w, 1, FLAT}, FLAT, FC1, ws.d_hidden1, n, nullptr, nullptr, ws.d_pool2, n, n);
}

/// A slab's way back from d_pool2: into the partial sums of both kernels' gradients.
template <class S>
void backward_slab(Workspace<S>& ws, const SlabArrays<S>& slab, const Layout<S>& layout, const S* d_pool2,
                   const Integer<S>* winner2) {
    S* d_conv2 = ws.d_conv2 + Layout<S>::MARGIN;
    for (int row = 0; row < Conv2::POOLED; row++) {
        const long pooled = row * layout.pool2.row;
        S* pair = d_conv2 + 2 * row * layout.conv2_grad.row;
        pool_row_backward<S, Conv2>(d_pool2 + pooled, winner2 + pooled, layout.pool2, pair, layout.conv2_grad,
                                    layout.samples);
        kernel_gradient_rows<S, Conv2>(slab.pool1 + 2 * row * layout.pool1.row, layout.pool1, pair, layout.conv2_grad,
                                       ws.ones, ws.partial2);
    }
    conv2_input_gradient<S>(d_conv2, ws.kernel2_back, ws.d_pool1, layout);
    for (int row = 0; row < Conv1::POOLED; row++) {
        const long pooled = row * layout.pool1.row;
        pool_row_backward<S, Conv1>(ws.d_pool1 + pooled, slab.winner1 + pooled, layout.pool1, ws.rows1, layout.conv1,
                                    layout.samples);
        kernel_gradient_rows<S, Conv1>(slab.x + 2 * row * layout.image.row, layout.image, ws.rows1, layout.conv1,
                                       ws.ones, ws.partial1);
    }
}

/// The gradient of every weight from d_logits, which is zero beyond the last sample.
template <class S>
void backward(const S* w, Workspace<S>& ws, const Batch<S>& batch, const S* extra, S* gradient) {
    backward_fully_connected(w, ws, batch, extra, gradient);
    std::memset(ws.partial1, 0, (Conv1::KERNEL_SIZE + Conv1::OUT) * LANES<S> * sizeof(S));
    std::memset(ws.partial2, 0, (Conv2::KERNEL_SIZE + Conv2::OUT) * LANES<S> * sizeof(S));
    for (int i = 0; i < 2; i++)
        if (batch.slab[i].samples > 0)
            backward_slab<S>(ws, ws.slab[i], batch.slab[i], ws.d_pool2 + batch.first(i), ws.winner2 + batch.first(i));
    finish_kernel_gradient<S, Conv1>(ws.partial1, gradient + Offsets::conv1_w, gradient + Offsets::conv1_b);
    finish_kernel_gradient<S, Conv2>(ws.partial2, gradient + Offsets::conv2_w, gradient + Offsets::conv2_b);
}

// ------------------------------------------------------------------------------------------------ Moon

constexpr double COSINE_EPS = 1e-8;  // the smallest norm a feature vector is divided by, as in PyTorch

/// norm[n] = ‖z[·][n]‖ for the batch's features.
template <class S>
INLINE Vec<S> feature_norm(const S* z, long padded, long n) {
    Vec<S> squares = {};
    for (int f = 0; f < FC2; f++) squares = fma(load(z + f * padded + n), load(z + f * padded + n), squares);
    return square_root<S>(squares);
}

/// Moon's gradient with respect to z. The loss of a sample is log(1 + exp((cos(z, z_p) − cos(z, z_g)) / τ)).
/// With D = z_p/‖z_p‖ − z_g/‖z_g‖ the difference of the cosines is d = (z/‖z‖)·D, so D is all that is needed of the
/// frozen models, and ∂/∂z = μ/(τ·samples) · σ(d/τ) · (D − d·z/‖z‖) / ‖z‖, where z > 0 (fc2's ReLU).
template <class S>
void contrastive_gradient(const S* z, const S* difference, S mu, S tau, const Batch<S>& batch, S* gradient) {
    const long padded = batch.padded;
    const Vec<S> zero = {}, one = fill<S>(S(1));
    for (long n = 0; n < padded; n += WIDTH<S>) {
        const Vec<S> norm = feature_norm<S>(z, padded, n), divisor = max<S>(norm, fill<S>(S(COSINE_EPS)));
        const Vec<S> direction_divisor = norm > zero ? norm : one;
        Vec<S> dot = {};
        for (int f = 0; f < FC2; f++)
            dot = fma(load(z + f * padded + n) / divisor, load(difference + f * padded + n), dot);
        const Vec<S> sigmoid = one / (one + exp<S>(-dot / tau));
        const Vec<S> scale = fill<S>(mu / (tau * S(batch.samples))) * sigmoid / divisor;
        for (int f = 0; f < FC2; f++) {
            const Vec<S> value = load(z + f * padded + n);
            const Vec<S> across = fma(-dot, value / direction_divisor, load(difference + f * padded + n));
            store(gradient + f * padded + n, value > zero ? scale * across : zero);
        }
    }
    for (int f = 0; f < FC2; f++)
        for (long n = batch.samples; n < padded; n++) gradient[f * padded + n] = 0;
}

// ------------------------------------------------------------------------------------------------ one device

/// Everything a device's local training reads and writes; engines/native.py has the same fields in the same order.
template <class S>
struct Training {
    const uint8_t* images;      // the whole training set, [·][3][32][32]
    const int64_t* labels;      // the whole training set
    const float* pixel_values;  // [3][256]: what each byte means
    const int64_t* positions;   // [n]: the device's images in the training set
    const int64_t* order;       // [epochs][n]: visiting order, as places in `positions`
    const uint8_t* mirror;      // [epochs][n]
    const S* weights;           // the global model
    const S* correction;        // or null
    const S* previous;          // or null
    S* trained;                 // out: the local model
    S* soft_label;              // out: [classes]
    int64_t n, epochs, batch_size, classes;
    double lr, momentum, prox_mu, moon_mu, moon_tau;
};

constexpr int FORWARD_BATCH = 48;  // where no batch is prescribed: whole vectors, and small enough for the cache

/// Calls use(batch, first) after the forward pass of each batch of the device's images, in order.
template <class S, class Forward, class Use>
void for_each_batch(const Training<S>& job, Workspace<S>& ws, const uint8_t* mirror, Forward run, Use use) {
    for (int64_t first = 0; first < job.n; first += ws.capacity) {
        const Batch<S> batch(int(job.n - first < ws.capacity ? job.n - first : ws.capacity));
        for (int n = 0; n < batch.samples; n++) ws.sources[n] = job.images + job.positions[first + n] * IMAGE_BYTES;
        read_batch(mirror, job.pixel_values, ws, batch);
        run(batch);
        use(batch, first);
    }
}

/// Adds sign · z/‖z‖ of a frozen model to difference[orientation][image][feature], both orientations.
template <class S>
void add_unit_features(const Training<S>& job, const S* weights, S sign, Workspace<S>& ws, S* difference) {
    Array<uint8_t> all_mirrored(ws.capacity);
    std::memset(all_mirrored, 1, ws.capacity);
    pack_kernels(weights, ws);
    for (int orientation = 0; orientation < 2; orientation++)
        for_each_batch(
            job, ws, orientation ? all_mirrored.data : nullptr,
            [&](const Batch<S>& batch) { forward_features(weights, ws, batch); },
            [&](const Batch<S>& batch, int64_t first) {
                for (long n = 0; n < batch.padded; n += WIDTH<S>) {
                    const Vec<S> norm = feature_norm<S>(ws.hidden2, batch.padded, n);
                    const Vec<S> divisor = max<S>(norm, fill<S>(S(COSINE_EPS)));
                    for (int f = 0; f < FC2; f++) {
                        S* z = ws.hidden2 + f * batch.padded + n;
                        store(z, load(z) / divisor);
                    }
                }
                for (int n = 0; n < batch.samples; n++)
                    for (int f = 0; f < FC2; f++)
                        difference[((orientation * job.n) + first + n) * FC2 + f] +=
                            sign * ws.hidden2[f * batch.padded + n];
            });
}

/// d_logits = (softmax − one-hot label) / samples: the gradient of the mean cross-entropy.
template <class S>
void cross_entropy_gradient(const Training<S>& job, const int64_t* order, Workspace<S>& ws, const Batch<S>& batch) {
    softmax<S>(ws, batch, ws.d_logits);
    for (int n = 0; n < batch.samples; n++) {
        const int64_t label = job.labels[job.positions[order[n]]];
        ws.d_logits[label * batch.padded + n] -= 1;
    }
    for (int c = 0; c < ws.classes; c++) {
        S* d = ws.d_logits + c * batch.padded;
        for (int n = 0; n < batch.samples; n++) d[n] /= S(batch.samples);
        for (long n = batch.samples; n < batch.padded; n++) d[n] = 0;
    }
}

/// g ← g + prox_mu·(w − w_g);  v ← momentum·v + g;  w ← w − lr·v − lr·correction.
template <class S>
void step(const Training<S>& job, long count, const S* global, const S* correction, const S* gradient, S* velocity,
          S* weights) {
    const Vec<S> minus_lr = fill<S>(S(-job.lr)), momentum = fill<S>(S(job.momentum)), prox = fill<S>(S(job.prox_mu));
    for (long i = 0; i < count; i += WIDTH<S>) {
        Vec<S> w = load(weights + i), g = load(gradient + i);
        if (job.prox_mu != 0) g = fma(prox, w - load(global + i), g);
        const Vec<S> v = fma(momentum, load(velocity + i), g);
        w = fma(minus_lr, v, w);
        if (correction) w = fma(minus_lr, load(correction + i), w);
        store(velocity + i, v);
        store(weights + i, w);
    }
}

/// The mean softmax output over the device's images, not mirrored; the sum runs in double over the images in order.
template <class S>
void soft_label(const Training<S>& job, const S* weights) {
    Workspace<S> ws(int(job.classes), FORWARD_BATCH);
    Array<double> sums(job.classes);
    pack_kernels(weights, ws);
    for_each_batch(
        job, ws, nullptr, [&](const Batch<S>& batch) { forward(weights, ws, batch); },
        [&](const Batch<S>& batch, int64_t) {
            softmax<S>(ws, batch, ws.d_logits);
            for (int c = 0; c < ws.classes; c++)
                for (int n = 0; n < batch.samples; n++) sums[c] += double(ws.d_logits[c * batch.padded + n]);
        });
    for (int c = 0; c < ws.classes; c++) job.soft_label[c] = S(sums[c] / double(job.n));
}

template <class S>
void train(const Training<S>& job) {
    const long capacity = job.batch_size < job.n ? job.batch_size : job.n;
    Workspace<S> ws(int(job.classes), int(capacity));
    const long count = ws.at.count;
    Array<S> weights(count), global(count), correction(count), gradient(count), velocity(count);
    std::memcpy(weights, job.weights, count * sizeof(S));
    std::memcpy(global, job.weights, count * sizeof(S));
    if (job.correction) std::memcpy(correction, job.correction, count * sizeof(S));

    const bool contrast = job.previous && job.moon_mu != 0;
    Array<S> difference(contrast ? 2 * job.n * FC2 : 0);
    Array<S> batch_difference(FC2 * ws.full.padded), extra(FC2 * ws.full.padded);
    if (contrast) {
        Workspace<S> frozen(int(job.classes), FORWARD_BATCH);
        add_unit_features(job, job.weights, S(-1), frozen, difference.data);
        add_unit_features(job, job.previous, S(1), frozen, difference.data);
    }

    for (int64_t epoch = 0; epoch < job.epochs; epoch++)
        for (int64_t first = 0; first < job.n; first += capacity) {
            const Batch<S> batch(int(job.n - first < capacity ? job.n - first : capacity));
            const int64_t* order = job.order + epoch * job.n + first;
            const uint8_t* mirror = job.mirror + epoch * job.n + first;
            for (int n = 0; n < batch.samples; n++)
                ws.sources[n] = job.images + job.positions[order[n]] * IMAGE_BYTES;
            read_batch(mirror, job.pixel_values, ws, batch);
            pack_kernels<S>(weights, ws);
            forward<S>(weights, ws, batch);
            cross_entropy_gradient(job, order, ws, batch);
            if (contrast) {
                for (int n = 0; n < batch.samples; n++)
                    for (int f = 0; f < FC2; f++)
                        batch_difference[f * batch.padded + n] =
                            difference[((mirror[n] ? job.n : 0) + order[n]) * FC2 + f];
                contrastive_gradient<S>(ws.hidden2, batch_difference, S(job.moon_mu), S(job.moon_tau), batch, extra);
            }
            backward<S>(weights, ws, batch, contrast ? extra.data : nullptr, gradient);
            step<S>(job, count, global, job.correction ? correction.data : nullptr, gradient, velocity, weights);
        }
    std::memcpy(job.trained, weights, count * sizeof(S));
    soft_label<S>(job, weights);
}

// ------------------------------------------------------------------------------------------------ evaluation

/// The number of right answers (the first of equal logits is the answer) and the sum of cross-entropies, in order.
template <class S>
void evaluate(const uint8_t* images, const int64_t* labels, int64_t count, const float* pixel_values, const S* model,
              int classes, int64_t* right, double* loss) {
    Workspace<S> ws(classes, FORWARD_BATCH);
    Array<S> weights(ws.at.count), largest(ws.full.padded), total(ws.full.padded);
    std::memcpy(weights, model, ws.at.count * sizeof(S));
    pack_kernels<S>(weights, ws);
    *right = 0;
    *loss = 0;
    for (int64_t first = 0; first < count; first += FORWARD_BATCH) {
        const Batch<S> batch(int(count - first < FORWARD_BATCH ? count - first : FORWARD_BATCH));
        for (int n = 0; n < batch.samples; n++) ws.sources[n] = images + (first + n) * IMAGE_BYTES;
        read_batch(nullptr, pixel_values, ws, batch);
        forward<S>(weights, ws, batch);
        softmax<S>(ws, batch, ws.d_logits, largest, total);
        for (long n = 0; n < batch.padded; n += WIDTH<S>) store<S>(total + n, log<S>(load<S>(total + n)));
        for (int n = 0; n < batch.samples; n++) {
            const S* logit = ws.logits + n;
            int answer = 0;
            for (int c = 1; c < classes; c++)
                if (logit[c * batch.padded] > logit[answer * batch.padded]) answer = c;
            const int64_t label = labels[first + n];
            *right += answer == label;
            *loss += double(total[n]) + (double(largest[n]) - double(logit[label * batch.padded]));
        }
    }
}

template <class S>
void apply(Vec<S> (*function)(Vec<S>), const S* x, S* y, int64_t count) {
    for (int64_t i = 0; i < count; i += WIDTH<S>) {
        Vec<S> v = {};
        for (int64_t k = 0; k < WIDTH<S> && i + k < count; k++) v[k] = x[i + k];
        store_some(y + i, function(v), count - i);
    }
}

/// 0, or 1 when there was not enough memory: no exception may leave through the C interface.
template <class Function>
int guarded(Function function) {
    try {
        function();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

}  // namespace

#define EXPORT(S, SUFFIX)                                                                                             \
    extern "C" int train_##SUFFIX(const Training<S>* job) {                                                           \
        return guarded([&] { train(*job); });                                                                         \
    }                                                                                                                 \
    extern "C" int evaluate_##SUFFIX(const uint8_t* images, const int64_t* labels, int64_t count,                     \
                                     const float* pixel_values, const S* weights, int64_t classes, int64_t* right,    \
                                     double* loss) {                                                                  \
        return guarded([&] { evaluate<S>(images, labels, count, pixel_values, weights, int(classes), right, loss); });\
    }                                                                                                                 \
    extern "C" void exp_##SUFFIX(const S* x, S* y, int64_t count) { apply<S>(exp<S>, x, y, count); }                  \
    extern "C" void log_##SUFFIX(const S* x, S* y, int64_t count) { apply<S>(log<S>, x, y, count); }

EXPORT(float, f32)
EXPORT(double, f64)
