// The paper's CNN on a CPU: a device's whole local training in one call, and evaluation.
//
// LAYOUT. Activations lie as [channel][row][column][sample], the samples of a batch innermost. The columns of a
// row and their samples thus form one long axis of columns × samples numbers, and moving one column to the right is
// moving `samples` along this axis. Every inner loop runs over it in whole machine vectors, whatever the number of
// channels or columns. Rows are a little longer than their contents: a vector that starts inside a row may run past
// its end. What stands there (and, in the fully connected layers, beyond the last sample) is finite but meaningless;
// it is only ever computed with itself, or multiplied by a gradient that is zero there.
//
// TILING. Convolutions, the gradient of their input and matrix products keep a tile of outputs × vectors in registers
// (6 × 4 or 8 × 3 where there are 32 registers) and run through all inputs of that tile, so that each loaded number is
// used many times. Convolution and pooling are fused by pairs of rows: the unpooled activations, the largest array of
// the network, never exist as a whole; with enough registers the four inputs of a window are a tile and pooled there.
// Pooling remembers which of its four inputs won; the backward pass needs nothing else.
//
// LEAVING OUT ZEROS. Of the four inputs of a pooling window one at most gets a gradient, and a kernel's gradient sums
// over those alone; adding zero would not change it. Which input won differs from sample to sample, so there vectors
// run along the taps of the kernel, and the layer's input is needed sample by sample (see Pixels; a device's images are
// read into this form once for all epochs). Which positions won is kept as bits, from which a lane's positions are
// listed without a branch. The gradient of conv2's input halves its zeros: a multiplication serves two neighbours of a
// window's row. A sum without its zeros could differ in the sign of a zero only; and where weights or gradients are no
// longer finite, they stay so either way, and the run has diverged.
//
// THE SAME BITS ON ANY CPU. Results do not depend on the instruction set, the compiler or the number of threads:
//  - Each number is accumulated in one order, written here and not chosen by a compiler: -ffp-contract=off and no
//    -ffast-math. (Leaving contraction to the compiler is no option: GCC, tuned for some CPUs, takes chains of fused
//    operations apart again.)
//  - A multiplication followed by an addition is fused where `fma` is written and nowhere else. That function is the
//    only one that names instructions, because GCC has no portable vector form of it.
//  - Sums along the sample axis (weight gradients) are kept in a fixed number of partial sums, LANES, whatever the
//    width of a machine vector, and then added by a fixed tree. Every other sum runs over channels or features, one
//    term after the other, so that neither the width of a vector nor the size of a tile touches it.
//  - exp and log are ours; +, −, ×, ÷ and √ are correctly rounded on every machine (IEEE 754).
//
// The scalar type is a template parameter: float is the engine, double exists to be compared with float64 PyTorch.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__x86_64__) && !defined(__FMA__)
#error "the native engine needs a CPU with fused multiply-add (x86-64-v3 or newer)"
#endif

#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))  // for loops of which GCC, measured, makes slower code in another function

namespace {

// ------------------------------------------------------------------------------------------------ machine

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
constexpr bool MANY_REGISTERS = VECTOR_BYTES != 32;  // 32 of them; AVX2 has 16

typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));
typedef double Doubles __attribute__((vector_size(VECTOR_BYTES)));

/// a·b + c, rounded once.
INLINE Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return Floats(_mm512_fmadd_ps(a, b, c));
#elif defined(__FMA__)
    return Floats(_mm256_fmadd_ps(a, b, c));
#elif defined(__aarch64__)
    return Floats(vfmaq_f32(c, a, b));
#else
    for (size_t i = 0; i < sizeof c / sizeof(float); i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

INLINE Doubles fma(Doubles a, Doubles b, Doubles c) {
#if defined(__AVX512F__)
    return Doubles(_mm512_fmadd_pd(a, b, c));
#elif defined(__FMA__)
    return Doubles(_mm256_fmadd_pd(a, b, c));
#elif defined(__aarch64__)
    return Doubles(vfmaq_f64(c, a, b));
#else
    for (size_t i = 0; i < sizeof c / sizeof(double); i++) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
#endif
}

/// Keeps a loaded vector in its register: GCC would load it again for each use, which with AVX2 costs a fifth.
template <class Vector>
INLINE void keep(Vector& v) {
#if defined(__x86_64__)
    __asm__("" : "+v"(v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(v));
#endif
}

/// a[FIRST], b[FIRST], a[FIRST + 1], b[FIRST + 1], …
template <int FIRST, class Vector, int... I>
INLINE Vector interleave(Vector a, Vector b, std::integer_sequence<int, I...>) {
    constexpr int width = sizeof...(I);
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (FIRST + I / 2 + I % 2 * width)...);
#else
    typedef decltype(a < b) Indices;
    return __builtin_shuffle(a, b, Indices{(FIRST + I / 2 + I % 2 * width)...});
#endif
}

template <int FIRST, class Vector>
INLINE Vector interleave(Vector a, Vector b) {
    return interleave<FIRST>(a, b, std::make_integer_sequence<int, int(sizeof a / sizeof a[0])>());
}

#if !defined(__AVX512F__)
/// The positions of the bits that are set in a byte, rising.
struct BitPositions {
    uint32_t of[256][8] = {};
    constexpr BitPositions() {
        for (int byte = 0; byte < 256; byte++)
            for (int bit = 0, count = 0; bit < 8; bit++)
                if (byte >> bit & 1) of[byte][count++] = uint32_t(bit);
    }
};
constexpr BitPositions BIT_POSITIONS;
#endif

/// Appends those of sixteen numbers, each plus `shift`, whose bit is set. It may write up to sixteen beyond the list's
/// end, which it returns. No branch: it could not be predicted.
INLINE uint32_t* append_listed(const uint32_t* numbers, uint32_t shift, uint32_t bits, uint32_t* list) {
#if defined(__AVX512F__)
    const __m512i shifted = _mm512_add_epi32(_mm512_loadu_si512(numbers), _mm512_set1_epi32(int32_t(shift)));
    _mm512_storeu_si512(list, _mm512_maskz_compress_epi32(__mmask16(bits), shifted));
    return list + __builtin_popcount(bits & 0xffff);
#else
    for (int first = 0; first < 16; first += 8) {
        const uint32_t byte = bits >> first & 255;
#if defined(__AVX2__)
        const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers + first));
        const __m256i chosen = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(BIT_POSITIONS.of[byte]));
        const __m256i shifted = _mm256_add_epi32(eight, _mm256_set1_epi32(int32_t(shift)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(list), _mm256_permutevar8x32_epi32(shifted, chosen));
#else
        for (int i = 0; i < 8; i++) list[i] = numbers[first + BIT_POSITIONS.of[byte][i]] + shift;
#endif
        list += __builtin_popcount(byte);
    }
    return list;
#endif
}

template <class S>
struct Scalar;
template <>
struct Scalar<float> {
    typedef Floats Vec;
    typedef int32_t Integer;
    typedef uint32_t Bits;
    static constexpr int MANTISSA = 23, BIAS = 127, EXP_TERMS = 7, LOG_TERMS = 5;
    static constexpr float EXP_MIN = -87, EXP_MAX = 88;
    static constexpr float ROUND = 0x1.8p23f;  // x + ROUND − ROUND is x rounded to a whole number
    static constexpr float LN2_HIGH = 0x1.62e4p-1f, LN2_LOW = 0x1.7f7d1cp-20f;
};
template <>
struct Scalar<double> {
    typedef Doubles Vec;
    typedef int64_t Integer;
    typedef uint64_t Bits;
    static constexpr int MANTISSA = 52, BIAS = 1023, EXP_TERMS = 13, LOG_TERMS = 11;
    static constexpr double EXP_MIN = -708, EXP_MAX = 709;
    static constexpr double ROUND = 0x1.8p52;
    static constexpr double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;
};

constexpr long round_up(long n, long unit) { return (n + unit - 1) / unit * unit; }

void* aligned_memory(size_t bytes) {
    void* memory = std::aligned_alloc(64, bytes);
    if (!memory) throw std::bad_alloc();
    return memory;
}

/// A thread's memory for arrays, which come and go as a stack. It is kept from call to call: the system would clear
/// fresh pages for each device. A call that needs more than is there takes the rest from the system; the next finds
/// enough.
class Stack {
  public:
    ~Stack() { std::free(base); }

    void* push(size_t bytes) {
        if (used == 0 && wanted > size && wanted <= MOST) {
            std::free(base);
            base = nullptr, size = 0;  // in case of an exception
            base = static_cast<char*>(aligned_memory(wanted));
            size = wanted;
        }
        void* const memory = used + bytes <= size ? base + used : aligned_memory(bytes);
        used += bytes;
        if (used > wanted) wanted = used;
        return memory;
    }
    void pop(void* memory, size_t bytes) {
        if (used > size) std::free(memory);
        used -= bytes;
    }

  private:
#if defined(__SANITIZE_ADDRESS__)
    static constexpr size_t MOST = 0;  // so that writing beyond an array is seen
#else
    static constexpr size_t MOST = size_t(1) << 28;
#endif
    char* base = nullptr;
    size_t size = 0, used = 0, wanted = 0;
};
thread_local Stack stack;

/// A cache-line aligned array with room for a vector beyond its end; zeroed unless said otherwise.
template <class T>
class Array {
  public:
    explicit Array(long count, bool zeroed = true)
        : bytes(round_up(count * long(sizeof(T)) + 64, 64)), data(static_cast<T*>(stack.push(bytes))) {
        if (zeroed) std::memset(static_cast<void*>(data), 0, bytes);
    }
    ~Array() { stack.pop(data, bytes); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    operator T*() const { return data; }

  private:
    const size_t bytes;

  public:
    T* const data;
};

// ------------------------------------------------------------------------------------------------ network

constexpr int KERNEL = 5, TAPS = KERNEL * KERNEL;
constexpr int IMAGE_CHANNELS = 3, IMAGE_SIDE = 32, IMAGE_BYTES = IMAGE_CHANNELS * IMAGE_SIDE * IMAGE_SIDE;
constexpr int FC1 = 120, FC2 = 84;

/// Sizes and register tiles of the convolutions. Tiles change the speed, never the result.
struct Conv1 {
    static constexpr int IN = IMAGE_CHANNELS, OUT = 6, SIDE = 28, POOLED = 14, KERNEL_SIZE = OUT * IN * TAPS;
    static constexpr int TILE_OUT = OUT, TILE_VECTORS = MANY_REGISTERS ? 4 : 2, WINDOW_OUT = OUT;
};
struct Conv2 {
    static constexpr int IN = 6, OUT = 16, SIDE = 10, POOLED = 5, KERNEL_SIZE = OUT * IN * TAPS;
    static constexpr int TILE_OUT = MANY_REGISTERS ? 8 : 4, TILE_VECTORS = 3, WINDOW_OUT = 4;
    static constexpr int INPUT_TILE_OUT = IN, INPUT_TILE_VECTORS = MANY_REGISTERS ? 4 : 2;
};
constexpr int FLAT = Conv2::OUT * Conv2::POOLED * Conv2::POOLED;
constexpr int FC_TILE_ROWS = 6, FC_TILE_VECTORS = MANY_REGISTERS ? 4 : 2;
constexpr int WIDEST_TILE = 4;
constexpr int GRADIENT_TILE = MANY_REGISTERS ? 24 : 12;  // vectors of sums
static_assert(Conv1::SIDE == IMAGE_SIDE - KERNEL + 1 && Conv2::SIDE == Conv1::POOLED - KERNEL + 1, "no padding");

/// Where each tensor starts in the flat vector (PyTorch's parameter order).
struct Offsets {
    static constexpr long conv1_w = 0, conv1_b = conv1_w + Conv1::KERNEL_SIZE, conv2_w = conv1_b + Conv1::OUT,
                          conv2_b = conv2_w + Conv2::KERNEL_SIZE, fc1_w = conv2_b + Conv2::OUT,
                          fc1_b = fc1_w + FC1 * FLAT, fc2_w = fc1_b + FC1, fc2_b = fc2_w + FC2 * FC1,
                          fc3_w = fc2_b + FC2;
    long fc3_b, count;
    explicit Offsets(int classes) : fc3_b(fc3_w + long(classes) * FC2), count(fc3_b + classes) {}
};

constexpr int64_t MOST_KEPT = 4096;  // images of a device that are kept as numbers: 50 MB
constexpr int FORWARD_BATCH = 48;                // where no batch is prescribed: whole vectors, and within the cache
constexpr double COSINE_EPS = 1e-8;              // the smallest norm Moon's features are divided by, as in PyTorch

/// Distances between neighbours of a [channel][row][column][sample] array.
struct Grid {
    long channel, row, column;
};

/// Everything a device's local training reads and writes; engines/native.py has the same fields in the same order.
template <class S>
struct Training {
    const uint8_t* images;      // the whole training set, [·][3][32][32]
    const int64_t* labels;      // the whole training set
    const float* pixel_values;  // [3][256]: what each byte means
    const int64_t* positions;   // [n]: the device's images in the training set
    const int64_t* order;       // [epochs][n]: visiting order, as places in `positions`
    const uint8_t* mirror;      // [epochs][n]: 0 or 1
    const S* weights;           // the global model
    const S* correction;        // or null
    const S* previous;          // or null
    S* trained;                 // out: the local model
    S* soft_label;              // out: [classes]
    double* loss;               // out: mean cross-entropy of the local model over the device's images
    double* first_loss;         // out, or null: of the global model
    const int32_t* stop;        // once it is not 0 the call returns at the next batch, what it gives is of no use
    int64_t n, epochs, batch_size, classes, correction_in_momentum;
    double lr, momentum, prox_mu, moon_mu, moon_tau;
};

/// All that follows is written for one scalar type S.
template <class S>
struct Cnn {
    using F = Scalar<S>;
    using Vec = typename F::Vec;
    using Integer = typename F::Integer;
    using Bits = typename F::Bits;
    typedef Integer Int __attribute__((vector_size(VECTOR_BYTES)));
    typedef Bits BitsVec __attribute__((vector_size(VECTOR_BYTES)));
    static constexpr int WIDTH = VECTOR_BYTES / int(sizeof(S));  // numbers in a machine vector
    static constexpr int LANES = 64 / int(sizeof(S));  // partial sums: 16 floats or 8 doubles, on every machine
    static constexpr int PARTS = LANES / WIDTH;        // machine vectors that hold them
    static constexpr int WORD = 8 * sizeof(Bits);

    // ------------------------------------------------------------------------------------------------ vectors

    static INLINE Vec load(const S* p) {
        Vec v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }
    static INLINE void store(S* p, Vec v) { std::memcpy(p, &v, sizeof v); }
    static INLINE Vec fill(S value) { return value - Vec{}; }  // not +: −0 + 0 would be +0
    static INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }

    static INLINE Vec square_root(Vec v) {
        for (int i = 0; i < WIDTH; i++) v[i] = sizeof(S) == 4 ? __builtin_sqrtf(v[i]) : __builtin_sqrt(v[i]);
        return v;
    }

    /// The sum of LANES partial sums as a fixed tree: halves are added until one number is left.
    static INLINE S sum_lanes(const S* partial) {
        S sums[LANES];
        std::memcpy(sums, partial, sizeof sums);
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int i = 0; i < half; i++) sums[i] += sums[i + half];
        return sums[0];
    }

    static constexpr S inverse_factorial(int n) {
        double value = 1;
        for (int i = 2; i <= n; i++) value /= i;
        return S(value);
    }

    /// eˣ = 2ᵏ·eʳ with k = round(x / ln 2), |r| ≤ ln 2 / 2, eʳ by its Taylor series.
    /// Within 2 units in the last place for EXP_MIN ≤ x ≤ EXP_MAX; outside, x counts as the nearer bound.
    static Vec exp(Vec x) {
        x = x < fill(F::EXP_MIN) ? fill(F::EXP_MIN) : x;
        x = x > fill(F::EXP_MAX) ? fill(F::EXP_MAX) : x;
        const Vec shifted = fma(x, fill(S(1.4426950408889634)), fill(F::ROUND));
        const Vec k = shifted - F::ROUND;
        const Vec r = fma(k, fill(-F::LN2_LOW), fma(k, fill(-F::LN2_HIGH), x));
        Vec series = fill(inverse_factorial(F::EXP_TERMS));
        for (int i = F::EXP_TERMS - 1; i >= 0; i--) series = fma(series, r, fill(inverse_factorial(i)));
        // The low bits of `shifted` are those of ROUND plus k, so k needs no conversion to an integer.
        const Int exponent = ((Int)shifted - (Int)fill(F::ROUND) + F::BIAS) << F::MANTISSA;
        return series * (Vec)exponent;
    }

    /// ln x = e·ln 2 + 2·artanh((m − 1)/(m + 1)) with x = 2ᵉ·m, √½ ≤ m < √2, artanh by its series.
    /// For normal x > 0: within 3 units in the last place.
    static Vec log(Vec x) {
        const Int bits = (Int)x, sqrt_half = (Int)fill(S(0.70710678118654752));
        const Int e = (bits - sqrt_half) >> F::MANTISSA;
        const Vec m = (Vec)(bits - (e << F::MANTISSA)), power = __builtin_convertvector(e, Vec);
        const Vec s = (m - S(1)) / (m + S(1)), s2 = s * s;
        Vec series = fill(S(1.0 / (2 * F::LOG_TERMS - 1)));
        for (int i = F::LOG_TERMS - 1; i >= 1; i--) series = fma(series, s2, fill(S(1.0 / (2 * i - 1))));
        return fma(power, fill(F::LN2_HIGH), fma(S(2) * s, series, power * F::LN2_LOW));
    }

    // ------------------------------------------------------------------------------------------------ arrays

    /// An array, or a part of it, with its steps.
    template <class T>
    struct View {
        T* data;
        Grid step;
        View rows_from(long row) const { return {data + row * step.row, step}; }
        operator View<const T>() const { return {data, step}; }
    };
    using In = View<const S>;
    using Out = View<S>;

    /// The layout of a slab of `samples` in the convolutional layers; `padded` is the batch's (see Batch).
    struct Layout {
        int samples;
        Grid image;         // the input
        Grid conv1, conv2;  // a pair of rows before pooling
        Grid pool1;         // after pooling
        Grid pool2;         // the slab's part of the array that fc1 reads: there each column is a row of its own
        Grid conv2_grad;    // all rows before pooling, a margin of zeros between them
        static constexpr long MARGIN = WIDEST_TILE * LANES;

        Layout(int n, long padded) : samples(n) {
            image = square(IMAGE_SIDE);
            conv1 = {2 * row(Conv1::SIDE), row(Conv1::SIDE), n};
            conv2 = {2 * row(Conv2::SIDE), row(Conv2::SIDE), n};
            pool1 = square(Conv1::POOLED);
            pool2 = {Conv2::POOLED * Conv2::POOLED * padded, Conv2::POOLED * padded, padded};
            const long margined = round_up(long(Conv2::SIDE) * n, LANES) + MARGIN;
            conv2_grad = {Conv2::SIDE * margined, margined, n};
        }

      private:
        long row(long columns) const { return round_up(columns * samples + LANES, LANES); }
        Grid square(long side) const { return {side * row(side), row(side), samples}; }
    };

    /// A batch, cut for the convolutional layers into a slab of whole LANES and a slab of the rest. In the first every
    /// column starts at a cache line, so that no load is split over two: a batch of 50 is 48 fast samples and 2 others.
    struct Batch {
        int samples, whole;
        long padded;  // samples rounded up to LANES: the row length of the fully connected layers
        Layout slab[2];

        explicit Batch(int n)
            : samples(n), whole(n / LANES * LANES), padded(round_up(n, LANES)),
              slab{{whole, padded}, {n - whole, padded}} {}
        int first(int i) const { return i == 0 ? 0 : whole; }  // the slab's first sample
    };

    /// How a kernel's gradient sees the input of the convolution: sample by sample, the channels of a pixel side by
    /// side, so that what a row of the kernel meets is contiguous.
    template <class Conv>
    struct Pixels {
        static constexpr int SIDE = Conv::SIDE + KERNEL - 1, SIDE_BITS = SIDE > 16 ? 5 : 4;
        static constexpr long ROW = Conv::IN << SIDE_BITS, SAMPLE = ROW << SIDE_BITS;
        static constexpr int TAPS_ROW = int(round_up(KERNEL * Conv::IN, LANES)), VECTORS = TAPS_ROW / WIDTH;
        static constexpr int TILE_ROWS = VECTORS * 5 <= GRADIENT_TILE ? 5 : VECTORS * 3 <= GRADIENT_TILE ? 3 : 1;
        static constexpr long SUMS = KERNEL * TAPS_ROW + LANES;  // of an output and a lane: taps, then bias

        /// Positions of a row before pooling, rounded up; each belongs to lane position % LANES.
        static constexpr long positions(long samples) { return round_up(Conv::SIDE * samples, LANES); }
        /// A lane's positions in a pair of rows, rounded up to what is listed at a time.
        static constexpr long places(long samples) { return round_up(2 * positions(samples) / LANES, 16); }
        /// Words of as many bits.
        static constexpr long words(long samples) { return round_up(places(samples), WORD) / WORD; }
    };

    /// Where a slab's samples stand in Pixels: those of a lane side by side, so that they fit the first-level cache.
    static INLINE long slot(long n, long samples) {
        return samples < LANES ? n : n % LANES * (samples / LANES) + n / LANES;
    }

    /// Where in a row of winners is the one that a lane's position may be, and what it is then. In a slab of the rest,
    /// where a lane is not always the same sample, the row is laid out anew first, with −1 for won, see mark_winners.
    struct Sign {
        int32_t at, winner;
    };

    /// What is the same in every pair of rows. For each lane the spots of the positions that it sums, in order: a spot
    /// is the number of the position's pixel, sample << 2·SIDE_BITS | row << SIDE_BITS | column; in a slab of whole
    /// LANES it counts only the samples of the lane. And their signs.
    template <class Conv>
    struct Pattern {
        using P = Pixels<Conv>;
        long samples = 0, winner_column = 0;
        Array<uint32_t> spots;
        Array<Sign> signs;
        explicit Pattern(long most) : spots(LANES * P::places(most)), signs(P::places(most)) {}

        void find(long samples_now, long winner_column_now) {
            if (samples == samples_now && winner_column == winner_column_now) return;
            samples = samples_now, winner_column = winner_column_now;
            const bool whole = samples % LANES == 0;
            for (int row = 0; row < 2; row++)
                for (int column = 0; column < Conv::SIDE; column++)
                    for (long n = 0; n < samples; n++) {
                        const long position = row * P::positions(samples) + column * samples + n;
                        const long place = position / LANES;
                        const long sample = whole ? n / LANES : n;
                        spots[position % LANES * P::places(samples) + place] =
                            uint32_t((sample << P::SIDE_BITS | row) << P::SIDE_BITS | column);
                        const long at = column / 2 * winner_column + n / LANES * LANES;
                        signs[place] = whole ? Sign{int32_t(at), 2 * row + column % 2}
                                             : Sign{int32_t(place * LANES), -1};
                    }
        }
    };

    /// Of a window's gradient in each sample what falls to one of its two rows, all or nothing; and whether the winner
    /// is the right one of the row.
    struct Share {
        Vec gradient;
        Int right;
    };

    /// What a slab's forward pass leaves for its backward pass.
    struct Slab {
        Array<S> x, pool1;
        Pattern<Conv1> pattern1;
        Pattern<Conv2> pattern2;
        Array<Bits> won1, won2;  // which positions won: [row][output][word][lane]
        Slab(const Layout& layout, bool training)
            : x(IMAGE_CHANNELS * layout.image.channel), pool1(Conv1::OUT * layout.pool1.channel),
              pattern1(training * layout.samples), pattern2(training * layout.samples),
              won1(training * Conv1::POOLED * Conv1::OUT * Pixels<Conv1>::words(layout.samples) * LANES),
              won2(training * Conv2::POOLED * Conv2::OUT * Pixels<Conv2>::words(layout.samples) * LANES) {}
    };

    static constexpr long PARTIAL1 = Conv1::OUT * LANES * Pixels<Conv1>::SUMS;
    static constexpr long PARTIAL2 = Conv2::OUT * LANES * Pixels<Conv2>::SUMS;

    /// A model's arrays for batches of up to `capacity` samples; a name with d_ is the gradient of the one without.
    struct Workspace {
        int classes, capacity;
        Offsets at;
        Batch full;       // the largest batch
        Layout widest;    // a layout that no slab exceeds
        Slab slab[2];
        Array<S> rows1, rows2;  // pairs of rows before pooling
        Array<S> pool2, hidden1, hidden2, logits;
        Array<Integer> winner1, winner2;  // of conv1 only a row
        Array<S> d_logits, d_hidden2, d_hidden1, d_pool2, d_conv2, d_pool1;
        Array<S> partial1, partial2;              // partial sums of the kernels' gradients
        Array<S> kernel1, kernel2, kernel2_back;  // packed
        Array<S> transposed, pixels1, pixels2;
        Array<S> room;             // for images that are not kept
        Array<const S*> images;    // of the batch, as Pixels
        Array<Integer> won;
        Array<uint32_t> list;
        Array<Share> shares;

        /// Without `training`, arrays that only the backward pass uses are empty.
        Workspace(int classes, int capacity, bool training)
            : classes(classes), capacity(capacity), at(classes), full(capacity),
              widest(capacity < LANES ? LANES : capacity, full.padded),
              slab{Slab(full.slab[0], training), Slab(Layout(LANES - 1, full.padded), training)},
              rows1(Conv1::OUT * widest.conv1.channel), rows2(Conv2::OUT * widest.conv2.channel),
              pool2(FLAT * full.padded), hidden1(FC1 * full.padded), hidden2(FC2 * full.padded),
              logits(classes * full.padded), winner1(Conv1::OUT * widest.pool1.row), winner2(FLAT * full.padded),
              d_logits(classes * full.padded), d_hidden2(training * FC2 * full.padded),
              d_hidden1(training * FC1 * full.padded), d_pool2(training * FLAT * full.padded),
              d_conv2(training * (Layout::MARGIN + Conv2::OUT * widest.conv2_grad.channel)),
              d_pool1(training * Conv1::OUT * widest.pool1.channel), partial1(training * PARTIAL1),
              partial2(training * PARTIAL2), kernel1(Conv1::KERNEL_SIZE), kernel2(Conv2::KERNEL_SIZE),
              kernel2_back(Conv2::KERNEL_SIZE), transposed(training * capacity * round_up(FLAT, LANES)),
              pixels1(training * (capacity / LANES < LANES ? LANES : capacity / LANES) * Pixels<Conv1>::SAMPLE),
              pixels2(training * capacity * Pixels<Conv2>::SAMPLE), room(capacity * IMAGE_BYTES, false),
              images(capacity), won(training * LANES * Pixels<Conv1>::places(capacity)),
              list(training * Conv1::POOLED * Pixels<Conv1>::places(capacity)),
              shares(training * Conv2::OUT * Conv2::SIDE * Conv2::POOLED) {}
    };

    // ------------------------------------------------------------------------------------------------ transposing

    static INLINE Int load_int(const Integer* p) {
        Int v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }

    /// WIDTH vectors whose rows become columns.
    static INLINE void transpose_square(Vec (&rows)[WIDTH]) {
        for (int step = 1; step < WIDTH; step *= 2) {
            Vec next[WIDTH];
            for (int i = 0; i < WIDTH / 2; i++) {
                next[2 * i] = interleave<0>(rows[i], rows[i + WIDTH / 2]);
                next[2 * i + 1] = interleave<WIDTH / 2>(rows[i], rows[i + WIDTH / 2]);
            }
            for (int i = 0; i < WIDTH; i++) rows[i] = next[i];
        }
    }

    // ------------------------------------------------------------------------------------------------ input

    /// An image as Pixels: to[row][column][channel] = pixel_values[channel][byte], mirrored left-right where asked.
    static NOINLINE void read_image(const uint8_t* image, bool mirrored, const float* pixel_values, S* to) {
        for (int row = 0; row < IMAGE_SIDE; row++, image += IMAGE_SIDE)
            for (int i = 0; i < IMAGE_SIDE; i += 8, to += 8 * IMAGE_CHANNELS)
                for (int c = 0; c < IMAGE_CHANNELS; c++) {
                    uint64_t eight;
                    std::memcpy(&eight, image + c * IMAGE_SIDE * IMAGE_SIDE + (mirrored ? IMAGE_SIDE - 8 - i : i), 8);
                    if (mirrored) eight = __builtin_bswap64(eight);
#pragma GCC unroll 8
                    for (int k = 0; k < 8; k++)
                        to[k * IMAGE_CHANNELS + c] = S(pixel_values[c * 256 + (eight >> 8 * k & 255)]);
                }
    }

    /// A device's images as Pixels, read once for all epochs; if they are many, each time anew.
    struct Album {
        const Training<S>& job;
        const bool kept;
        Array<S> images;

        explicit Album(const Training<S>& job)
            : job(job), kept(job.n <= MOST_KEPT), images(kept ? job.n * IMAGE_BYTES : 0, false) {
            for (int64_t i = 0; kept && i < job.n; i++)
                read_image(source(i), false, job.pixel_values, images + i * IMAGE_BYTES);
        }
        const uint8_t* source(int64_t i) const { return job.images + job.positions[i] * IMAGE_BYTES; }

        bool any_mirrored() const { return std::memchr(job.mirror, 1, job.epochs * job.n) != nullptr; }

        /// Image i; where it is not kept like this, it is written to `room`.
        const S* get(int64_t i, bool mirrored, S* room) const {
            if (kept && !mirrored) return images + i * IMAGE_BYTES;
            read_image(source(i), mirrored, job.pixel_values, room);
            return room;
        }
    };

    /// Asks for numbers that are needed later; a batch's images come from far, and no CPU foresees so many streams.
    static INLINE void prefetch(const S* from, long count) {
        for (long i = 0; i < count; i += LANES) __builtin_prefetch(from + i, 0, 2);
    }

    /// Rows of x[channel][row][column][sample] from Pixels.
    static NOINLINE void spread_rows(const S* const* images, int first_row, int end_row, Out x) {
        using P = Pixels<Conv1>;
        const long samples = x.step.column;
        // A column's last vector runs into the next column: what is overwritten must be written later.
        for (long n = (samples - 1) / WIDTH * WIDTH; n >= 0; n -= WIDTH) {
            const S* from[WIDTH];  // the last sample stands for those beyond it
            for (int k = 0; k < WIDTH; k++) from[k] = images[n + k < samples ? n + k : samples - 1];
            for (int row = first_row; row < end_row; row++)
                for (int i = 0; i < P::ROW; i += WIDTH) {
                    Vec square[WIDTH];
                    for (int k = 0; k < WIDTH; k++) square[k] = load(from[k] + row * P::ROW + i);
                    transpose_square(square);
                    for (int k = 0; k < WIDTH; k++) {
                        const int channel = (i + k) % IMAGE_CHANNELS, column = (i + k) / IMAGE_CHANNELS;
                        store(x.data + channel * x.step.channel + row * x.step.row + column * samples + n, square[k]);
                    }
                }
        }
    }

    /// The rows that conv1 reads for a pooled row, as far as they are not there yet.
    static void spread_for(int pooled_row, const S* const* images, Out x) {
        const int first = pooled_row == 0 ? 0 : 2 * pooled_row + KERNEL - 1, end = 2 * pooled_row + KERNEL + 1;
        spread_rows(images, first, end, x);
        if (end < IMAGE_SIDE)
            for (int n = 0; n < x.step.column; n++)
                prefetch(images[n] + end * Pixels<Conv1>::ROW, 2 * Pixels<Conv1>::ROW);
    }

    // ------------------------------------------------------------------------------------------------ convolution

    /// What a tile of outputs reads: the input of tap (channel, kh, kw) is channel, kh and kw steps from x.data.
    /// With negative steps of rows and columns it is a transposed convolution. Taps that meet only zeros are left out.
    struct TileInput {
        In x;
        int channels, first_row, end_row, first_column, end_column;
    };

    /// sum[o][v] = bias[o] + Σ over channels and taps of kernel[channel][kh][kw][o] · x, for OUT outputs × VECTORS; the
    /// v-th vector of x is at[v] from its first.
    template <int OUT, int VECTORS>
    static INLINE void conv_sums(const TileInput& in, const S* kernel, int outputs, const S* bias,
                                 const long (&at)[VECTORS], Vec (&sum)[OUT][VECTORS]) {
        for (int o = 0; o < OUT; o++)
            for (int v = 0; v < VECTORS; v++) sum[o][v] = bias ? fill(bias[o]) : Vec{};
        for (int channel = 0; channel < in.channels; channel++)
            for (int kh = in.first_row; kh < in.end_row; kh++) {
                const S* x = in.x.data + channel * in.x.step.channel + kh * in.x.step.row +
                             in.first_column * in.x.step.column;
                const S* w = kernel + ((channel * KERNEL + kh) * KERNEL + in.first_column) * outputs;
#pragma GCC unroll 1  // unrolled, GCC moves sums to memory and back
                for (int kw = in.first_column; kw < in.end_column; kw++, x += in.x.step.column, w += outputs) {
                    Vec input[VECTORS];
                    for (int v = 0; v < VECTORS; v++) keep(input[v] = load(x + at[v]));
                    for (int o = 0; o < OUT; o++) {
                        Vec weight = fill(w[o]);
                        keep(weight);
                        for (int v = 0; v < VECTORS; v++) sum[o][v] = fma(input[v], weight, sum[o][v]);
                    }
                }
            }
    }

    /// Such sums of neighbouring vectors, stored.
    template <int OUT, int VECTORS>
    static INLINE void conv_tile(const TileInput& in, const S* kernel, int outputs, const S* bias, S* out,
                                 long out_channel) {
        long at[VECTORS];
        for (int v = 0; v < VECTORS; v++) at[v] = v * WIDTH;
        Vec sum[OUT][VECTORS];
        conv_sums(in, kernel, outputs, bias, at, sum);
        for (int o = 0; o < OUT; o++)
            for (int v = 0; v < VECTORS; v++) store(out + o * out_channel + v * WIDTH, sum[o][v]);
    }

    /// All outputs of one tile's positions; `vectors` may be fewer at the end of a row.
    template <int OUT, int VECTORS>
    static void conv_tiles(const TileInput& in, const S* kernel, int outputs, const S* bias, S* out, long out_channel,
                           long vectors) {
        if constexpr (VECTORS > 1)
            if (vectors < VECTORS)
                return conv_tiles<OUT, VECTORS - 1>(in, kernel, outputs, bias, out, out_channel, vectors);
        for (int o = 0; o < outputs; o += OUT)
            conv_tile<OUT, VECTORS>(in, kernel + o, outputs, bias ? bias + o : nullptr, out + o * out_channel,
                                    out_channel);
    }

    /// One row of y = bias + x ∗ kernel for all output channels; x begins at the first of the five rows it reads.
    template <class Conv>
    static NOINLINE void conv_row(In x, const S* kernel, const S* bias, Out y) {
        const long vectors = round_up(Conv::SIDE * y.step.column, WIDTH) / WIDTH;
        for (long v = 0; v < vectors; v += Conv::TILE_VECTORS) {
            const TileInput in{{x.data + v * WIDTH, x.step}, Conv::IN, 0, KERNEL, 0, KERNEL};
            conv_tiles<Conv::TILE_OUT, Conv::TILE_VECTORS>(in, kernel, Conv::OUT, bias, y.data + v * WIDTH,
                                                           y.step.channel, vectors - v);
        }
    }

    /// dx[c][r][·] = Σ over outputs and taps of dy[o][r − kh][· − kw] · kernel[o][kh][kw][c].
    static NOINLINE void conv2_input_gradient(In dy, const S* kernel, Out dx) {
        const long samples = dy.step.column, length = Conv2::SIDE * samples;
        const long vectors = round_up(Conv1::POOLED * samples, WIDTH) / WIDTH;
        const Grid back{dy.step.channel, -dy.step.row, -samples};
        constexpr int tile = Conv2::INPUT_TILE_VECTORS;
        for (int row = 0; row < Conv1::POOLED; row++) {
            const int first_row = row < Conv2::SIDE ? 0 : row - Conv2::SIDE + 1;
            const int end_row = row < KERNEL ? row + 1 : KERNEL;
            for (long v = 0; v < vectors; v += tile) {
                // Position p of dx meets dy[p − kw·samples], which lies in 0 … length; beside it are zeros.
                const long start = v * WIDTH, last = start + tile * WIDTH - 1;
                const int first_column = start < length ? 0 : int((start - length) / samples) + 1;
                const int end_column = last / samples < KERNEL ? int(last / samples) + 1 : KERNEL;
                const TileInput in{{dy.data + row * dy.step.row + start, back}, Conv2::OUT, first_row, end_row,
                                   first_column, end_column};
                conv_tiles<Conv2::INPUT_TILE_OUT, tile>(in, kernel, Conv2::IN, nullptr,
                                                        dx.data + row * dx.step.row + start, dx.step.channel,
                                                        vectors - v);
            }
        }
    }

    /// The same from the pooled gradient, for a slab of whole vectors. Of a window's two positions in a row one at most
    /// has a gradient: one multiplication serves both, each sample with the weight that belongs to its winner.
    static NOINLINE void conv2_input_gradient_windows(In d_pooled, const Integer* winner, const S* kernel,
                                                      Share* shares, Out dx) {
        constexpr int windows = Conv2::POOLED, outs = 8;  // so many outputs' shares fit the first-level cache
        for (long n = 0; n < dx.step.column; n += WIDTH) {
            for (int i = 0; i < Conv2::OUT * Conv2::SIDE * windows; i++) {
                const int o = i / (Conv2::SIDE * windows), row = i / windows % Conv2::SIDE, window = i % windows;
                const Grid& step = d_pooled.step;
                const long at = o * step.channel + row / 2 * step.row + window * step.column + n;
                const Int index = load_int(winner + at);
                shares[i] = {index >> 1 == row % 2 ? load(d_pooled.data + at) : Vec{}, index & 1};
            }
            for (int row = 0; row < Conv1::POOLED; row++) {
                const int first_row = row < Conv2::SIDE ? 0 : row - Conv2::SIDE + 1;
                const int end_row = row < KERNEL ? row + 1 : KERNEL;
                for (int first = 0; first < Conv2::OUT; first += outs)
                    for (int c = 0; c < Conv2::IN; c++) {
                        S* to = dx.data + c * dx.step.channel + row * dx.step.row + n;
                        Vec sum[Conv1::POOLED];
                        for (int i = 0; i < Conv1::POOLED; i++)
                            sum[i] = first > 0 ? load(to + i * dx.step.column) : Vec{};
                        for (int o = first; o < first + outs; o++)
                            for (int kh = first_row; kh < end_row; kh++) {
                                const Share* share = shares + (o * Conv2::SIDE + row - kh) * windows;
                                const S* w = kernel + (o * KERNEL + kh) * KERNEL * Conv2::IN + c;
                                Vec weight[KERNEL + 2] = {};  // zero beside the kernel
                                for (int kw = 0; kw < KERNEL; kw++) keep(weight[kw + 1] = fill(w[kw * Conv2::IN]));
#pragma GCC unroll 5
                                for (int window = windows - 1; window >= 0; window--) {
                                    const Vec gradient = share[window].gradient;
                                    const Int right = share[window].right;
#pragma GCC unroll 6
                                    for (int i = 0; i <= KERNEL; i++)
                                        sum[2 * window + i] =
                                            fma(right != 0 ? weight[i] : weight[i + 1], gradient, sum[2 * window + i]);
                                }
                            }
                        for (int i = 0; i < Conv1::POOLED; i++) store(to + i * dx.step.column, sum[i]);
                    }
            }
        }
    }

    // ------------------------------------------------------------------------------------------------ kernel gradients

    /// pixels[sample][row][column][channel] = x[channel][row][column][sample].
    template <class Conv>
    static NOINLINE void arrange_pixels(In x, S* pixels) {
        using P = Pixels<Conv>;
        const long samples = x.step.column;
        constexpr int numbers = P::SIDE * Conv::IN, length = int(round_up(numbers, WIDTH));
        long from[length];  // where each number of a row is; the last square repeats the last one
        for (int i = 0; i < length; i++) {
            const int number = i < numbers ? i : numbers - 1;
            from[i] = number % Conv::IN * x.step.channel + number / Conv::IN * samples;
        }
        for (int row = 0; row < P::SIDE; row++)
            for (long n = 0; n < samples; n += WIDTH)
                for (int i = 0; i < length; i += WIDTH) {
                    Vec square[WIDTH];
                    for (int k = 0; k < WIDTH; k++) square[k] = load(x.data + row * x.step.row + from[i + k] + n);
                    transpose_square(square);
                    S* to = pixels + row * P::ROW + i;
                    for (int k = 0; k < WIDTH && n + k < samples; k++)
                        store(to + slot(n + k, samples) * P::SAMPLE, square[k]);
                }
    }

    /// won[position] = −1 for the winners of a pooled row, 0 for all other positions of the pair of rows.
    template <class Conv>
    static void mark_winners(const Integer* winner, long winner_column, long samples, Integer* won) {
        const long length = Conv::SIDE * samples, positions = Pixels<Conv>::positions(samples);
        for (int row = 0; row < 2; row++, won += positions) {
            for (int column = 0; column < Conv::SIDE; column++)
                for (long n = 0; n < samples; n += WIDTH) {
                    const Int index = load_int(winner + column / 2 * winner_column + n);
                    const Int equal = index == Int{} + Integer(2 * row + column % 2);
                    std::memcpy(won + column * samples + n, &equal, sizeof equal);
                }
            for (long i = length; i < positions; i++) won[i] = 0;
        }
    }

    /// Bit i of bits[i / WORD][lane] is set where position i of a lane won.
    static NOINLINE void gather_bits(const Integer* from, const Sign* sign, long count, Bits* bits) {
        for (long word = 0; word * WORD < count; word++)
            for (int lane = 0; lane < LANES; lane += WIDTH) {
                BitsVec gathered = {};
                for (long i = (count < (word + 1) * WORD ? count : (word + 1) * WORD) - 1; i >= word * WORD; i--)
                    gathered = gathered + gathered -
                               (BitsVec)(load_int(from + sign[i].at + lane) == Int{} + Integer(sign[i].winner));
                std::memcpy(bits + word * LANES + lane, &gathered, sizeof gathered);
            }
    }

    /// The bits of a pooled row's outputs: bits[output][word][lane].
    template <class Conv>
    static void find_won(View<Integer> winner, const Pattern<Conv>& pattern, Workspace& ws, Bits* bits) {
        using P = Pixels<Conv>;
        const long samples = pattern.samples, count = 2 * P::positions(samples) / LANES;
        for (int o = 0; o < Conv::OUT; o++, bits += P::words(samples) * LANES) {
            const Integer* from = winner.data + o * winner.step.channel;
            if (samples % LANES != 0) {
                mark_winners<Conv>(from, winner.step.column, samples, ws.won);
                from = ws.won;
            }
            gather_bits(from, pattern.signs, count, bits);
        }
    }

    /// sums[kh][tap] += gradient · pixel for the listed spots and ROWS rows of the kernel; *bias += gradient.
    /// `gradient_step` has the distances of d_pooled; its first is that of samples.
    template <class Conv, int ROWS>
    static NOINLINE void add_listed(const S* pixels, const S* d_pooled, const Grid& gradient_step, const uint32_t* list,
                                    const uint32_t* end, S* sums, S* bias) {
        using P = Pixels<Conv>;
        constexpr uint32_t half = (1u << (P::SIDE_BITS - 1)) - 1;
        const uint64_t sample = gradient_step.channel, pooled_row = gradient_step.row, column = gradient_step.column;
        Vec sum[ROWS][P::VECTORS];
        S bias_sum = *bias;
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < P::VECTORS; v++) sum[r][v] = load(sums + r * P::TAPS_ROW + v * WIDTH);
        for (; list != end; list++) {
            const uint64_t spot = *list;
            const S* from = pixels + spot * Conv::IN;
            const uint64_t image = spot >> 2 * P::SIDE_BITS, window_row = spot >> (P::SIDE_BITS + 1) & half;
            const S d = d_pooled[image * sample + window_row * pooled_row + (spot >> 1 & half) * column];
            Vec gradient = fill(d);
            keep(gradient);
            for (int r = 0; r < ROWS; r++)
                for (int v = 0; v < P::VECTORS; v++)
                    sum[r][v] = fma(load(from + r * P::ROW + v * WIDTH), gradient, sum[r][v]);
            bias_sum += d;
        }
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < P::VECTORS; v++) store(sums + r * P::TAPS_ROW + v * WIDTH, sum[r][v]);
        *bias = bias_sum;
    }

    /// dkernel[o][tap] += Σ over positions of dy[o] · input[tap], into partial[o][lane][tap]. Lanes are the outer loop:
    /// the pixels of a lane's samples stay in the first-level cache for all outputs. One list for all rows: each list
    /// ends where no branch predictor expects it.
    /// `pixels_of(lane)` are those of a lane's samples, or of all samples in a slab of the rest; `ahead(lane, output)`
    /// may prefetch.
    template <class Conv, class PixelsOf, class Ahead>
    static void kernel_gradient(PixelsOf pixels_of, Ahead ahead, In d_pooled, const Bits* won,
                                const Pattern<Conv>& pattern, Workspace& ws, S* partial) {
        using P = Pixels<Conv>;
        constexpr int tile = P::TILE_ROWS, rest = KERNEL % tile;
        const long samples = pattern.samples, count = P::places(samples), words = P::words(samples);
        const bool whole = samples % LANES == 0;
        const Grid step{whole ? LANES : 1, d_pooled.step.row, d_pooled.step.column};
        for (int lane = 0; lane < LANES; lane++) {
            const S* const pixels = pixels_of(lane);
            for (int o = 0; o < Conv::OUT; o++) {
                ahead(lane, o);
                uint32_t* end = ws.list;
                for (int row = 0; row < Conv::POOLED; row++) {
                    const Bits* bits = won + (row * Conv::OUT + o) * words * LANES + lane;
                    for (long i = 0; i < count; i += 16)
                        end = append_listed(pattern.spots + lane * count + i, uint32_t(row << (P::SIDE_BITS + 1)),
                                            uint32_t(bits[i / WORD * LANES] >> i % WORD), end);
                }
                if (end == ws.list) continue;
                const S* d = d_pooled.data + o * d_pooled.step.channel + (whole ? lane : 0);
                S* sums = partial + (o * LANES + lane) * P::SUMS;
                S* bias = sums + KERNEL * P::TAPS_ROW;  // a number for each tile; the first counts
                int row = 0;
                for (; row + tile <= KERNEL; row += tile)
                    add_listed<Conv, tile>(pixels + row * P::ROW, d, step, ws.list, end, sums + row * P::TAPS_ROW,
                                           bias++);
                if constexpr (rest > 0)
                    add_listed<Conv, rest>(pixels + row * P::ROW, d, step, ws.list, end, sums + row * P::TAPS_ROW,
                                           bias);
            }
        }
    }

    /// The sums of all lanes, as sum_lanes adds them: the gradients of kernel and bias.
    template <class Conv>
    static void finish_kernel_gradient(S* partial, S* d_kernel, S* d_bias) {
        using P = Pixels<Conv>;
        for (int o = 0; o < Conv::OUT; o++) {
            S* sums = partial + o * LANES * P::SUMS;
            for (long half = LANES / 2 * P::SUMS; half >= P::SUMS; half /= 2)
                for (long i = 0; i < half; i += WIDTH) store(sums + i, load(sums + i) + load(sums + half + i));
            for (int c = 0; c < Conv::IN; c++)
                for (int kh = 0; kh < KERNEL; kh++)
                    for (int kw = 0; kw < KERNEL; kw++) *d_kernel++ = sums[kh * P::TAPS_ROW + kw * Conv::IN + c];
            d_bias[o] = sums[KERNEL * P::TAPS_ROW];
        }
    }

    // ------------------------------------------------------------------------------------------------ pooling, ReLU

    static constexpr Integer NO_WINNER = 4;  // the ReLU is closed, no gradient passes

    /// The maximum of 2 × 2 and of 0. The first of equal inputs wins, as in PyTorch.
    static INLINE void pool(const Vec (&corner)[4], S* pooled, Integer* winner) {
        Vec best = corner[0];
        Int index = {};
        for (int i = 1; i < 4; i++) {
            index = corner[i] > best ? Int{} + i : index;
            best = max(corner[i], best);
        }
        index = best > Vec{} ? index : Int{} + NO_WINNER;
        store(pooled, max(best, Vec{}));
        std::memcpy(winner, &index, sizeof index);
    }

    template <class Conv>
    static void pool_row(In rows, Out pooled, View<Integer> winner) {
        const long samples = rows.step.column;
        for (int channel = 0; channel < Conv::OUT; channel++)
            for (int column = 0; column < Conv::POOLED; column++) {
                const S* upper = rows.data + channel * rows.step.channel + 2 * column * samples;
                const S* lower = upper + rows.step.row;
                const auto to = [&](const Grid& step) { return channel * step.channel + column * step.column; };
                for (long n = 0; n < samples; n += WIDTH)
                    pool({load(upper + n), load(upper + samples + n), load(lower + n), load(lower + samples + n)},
                         pooled.data + to(pooled.step) + n, winner.data + to(winner.step) + n);
            }
    }

    /// The gradient of a pair of rows: a pooled gradient goes to the winner, the other three get zero.
    static void pool2_row_backward(In pooled, const Integer* winner, Out rows) {
        const long samples = rows.step.column, length = Conv2::SIDE * samples;
        for (int channel = 0; channel < Conv2::OUT; channel++) {
            S* upper = rows.data + channel * rows.step.channel;
            S* lower = upper + rows.step.row;
            for (int column = 0; column < Conv2::POOLED; column++)
                // The last vector of a column runs into the next one: what is overwritten must be written later.
                for (long n = (samples - 1) / WIDTH * WIDTH; n >= 0; n -= WIDTH) {
                    const long from = channel * pooled.step.channel + column * pooled.step.column + n;
                    const long left = 2 * column * samples + n, right = left + samples;
                    Int index;
                    std::memcpy(&index, winner + from, sizeof index);
                    const Vec gradient = load(pooled.data + from), zero = {};
                    store(upper + left, index == 0 ? gradient : zero);
                    store(lower + left, index == 2 ? gradient : zero);
                    store(upper + right, index == 1 ? gradient : zero);
                    store(lower + right, index == 3 ? gradient : zero);
                }
            std::memset(upper + length, 0, (rows.step.row - length) * sizeof(S));
            std::memset(lower + length, 0, (rows.step.row - length) * sizeof(S));
        }
    }

    /// pooled = ReLU(maxpool(bias + x ∗ kernel)) for a slab of whole vectors: the inputs of a window are a tile, and
    /// are pooled where they are, in registers. After each row done(row) is called.
    template <class Conv, class Done>
    static NOINLINE void conv_pool_windows(In x, const S* kernel, const S* bias, Out pooled, View<Integer> winner,
                                           Done done) {
        constexpr int outs = Conv::WINDOW_OUT;
        const long column = x.step.column, at[4] = {0, column, x.step.row, x.step.row + column};
        for (int row = 0; row < Conv::POOLED; row++) {
            for (long i = 0; i < Conv::POOLED * column; i += WIDTH) {
                const long window = i / column, n = i % column;
                const S* from = x.data + 2 * row * x.step.row + 2 * window * column + n;
                const TileInput in{{from, x.step}, Conv::IN, 0, KERNEL, 0, KERNEL};
                for (int o = 0; o < Conv::OUT; o += outs) {
                    Vec sum[outs][4];
                    conv_sums(in, kernel + o, Conv::OUT, bias + o, at, sum);
                    for (int k = 0; k < outs; k++) {
                        const auto to = [&](const Grid& step) {
                            return (o + k) * step.channel + row * step.row + window * step.column + n;
                        };
                        pool(sum[k], pooled.data + to(pooled.step), winner.data + to(winner.step));
                    }
                }
            }
            done(row);
        }
    }

    /// The same for any slab, by pairs of rows.
    template <class Conv, class Done>
    static void conv_pool(In x, const S* kernel, const S* bias, Out rows, Out pooled, View<Integer> winner, Done done) {
        if (MANY_REGISTERS && x.step.column > 0 && x.step.column % WIDTH == 0)
            return conv_pool_windows<Conv>(x, kernel, bias, pooled, winner, done);
        for (int row = 0; row < Conv::POOLED; row++) {
            conv_row<Conv>(x.rows_from(2 * row), kernel, bias, rows);
            conv_row<Conv>(x.rows_from(2 * row + 1), kernel, bias, rows.rows_from(1));
            pool_row<Conv>(rows, pooled.rows_from(row), winner.rows_from(row));
            done(row);
        }
    }

    // ------------------------------------------------------------------------------------------------ fully connected

    /// c[m][n] = bias[m] + Σ_k a[m][k] · b[k][n], k rising.
    struct Product {
        const S* a;
        long a_row, a_column;  // a[m][k] is at m·a_row + k·a_column: exchanged for a transposed matrix
        long rows, inner;
        const S* b;
        long b_row;
        S* c;
        long c_row, columns;
        const S* bias = nullptr;
    };

    template <int ROWS, int VECTORS>
    static INLINE void product_tile(const Product& p) {
        Vec sum[ROWS][VECTORS];
        for (int m = 0; m < ROWS; m++)
            for (int v = 0; v < VECTORS; v++) sum[m][v] = p.bias ? fill(p.bias[m]) : Vec{};
        for (long k = 0; k < p.inner; k++) {
            Vec right[VECTORS];
            for (int v = 0; v < VECTORS; v++) keep(right[v] = load(p.b + k * p.b_row + v * WIDTH));
            for (int m = 0; m < ROWS; m++) {
                Vec left = fill(p.a[m * p.a_row + k * p.a_column]);
                keep(left);
                for (int v = 0; v < VECTORS; v++) sum[m][v] = fma(right[v], left, sum[m][v]);
            }
        }
        for (int m = 0; m < ROWS; m++)
            for (int v = 0; v < VECTORS; v++) {
                const long at = m * p.c_row + v * WIDTH, left = p.columns - v * WIDTH;
                if (left >= WIDTH)
                    store(p.c + at, sum[m][v]);
                else
                    for (long i = 0; i < left; i++) p.c[at + i] = sum[m][v][i];
            }
    }

    /// The rows of one tile of columns, in tiles of ROWS and then of ever fewer.
    template <int ROWS, int VECTORS>
    static void product_rows(Product p) {
        for (; p.rows >= ROWS; p.rows -= ROWS) {
            product_tile<ROWS, VECTORS>(p);
            p.a += ROWS * p.a_row, p.c += ROWS * p.c_row;
            if (p.bias) p.bias += ROWS;
        }
        if constexpr (ROWS > 1)
            if (p.rows > 0) product_rows<ROWS / 2, VECTORS>(p);
    }

    /// Tiles of columns are the outer loop, so that those of b stay in the first-level cache; the last is narrower.
    template <int VECTORS = FC_TILE_VECTORS>
    static void product(Product p) {
        constexpr long width = VECTORS * WIDTH;
        for (; p.columns > width - WIDTH; p.columns -= width) {
            product_rows<FC_TILE_ROWS, VECTORS>(p);
            p.b += width, p.c += width;
        }
        if constexpr (VECTORS > 1)
            if (p.columns > 0) product<VECTORS - 1>(p);
    }

    /// y = W·x + b for x[inputs][sample].
    static void fully_connected(const S* w, const S* b, const S* x, int inputs, S* y, int outputs, const Batch& batch) {
        product({w, inputs, 1, outputs, inputs, x, batch.padded, y, batch.padded, batch.padded, b});
    }

    /// dx = Wᵀ·dy.
    static void input_gradient(const S* w, const S* dy, int outputs, S* dx, int inputs, const Batch& batch) {
        product({w, 1, inputs, inputs, outputs, dy, batch.padded, dx, batch.padded, batch.padded});
    }

    // The ReLU is a pass of its own: in the product, its zero would take a register that the tile needs.

    static void relu(S* x, int features, const Batch& batch) {
        for (long i = 0; i < features * batch.padded; i += WIDTH) store(x + i, max(load(x + i), Vec{}));
    }

    /// dx = 0 where x, the output of a ReLU, is 0.
    static void relu_gradient(const S* x, S* dx, int features, const Batch& batch) {
        for (long i = 0; i < features * batch.padded; i += WIDTH)
            store(dx + i, load(x + i) > Vec{} ? load(dx + i) : Vec{});
    }

    /// y[sample][feature] = x[feature][sample], a few features at a time to stay in the first-level cache.
    static void transpose(const S* x, long features, S* y, long y_row, const Batch& batch) {
        constexpr long block = 64;
        for (long start = 0; start < features; start += block) {
            const long end = start + block < features ? start + block : features;
            for (int n = 0; n < batch.samples; n++)
                for (long f = start; f < end; f++) y[n * y_row + f] = x[f * batch.padded + n];
        }
    }

    /// dW = dy·xᵀ, db = Σ dy over the samples (dy is zero beyond the last).
    static void weight_gradient(const S* dy, int outputs, const S* x, int inputs, S* transposed, S* dw, S* db,
                                const Batch& batch) {
        const long x_row = round_up(inputs, LANES);
        transpose(x, inputs, transposed, x_row, batch);
        product({dy, batch.padded, 1, outputs, batch.samples, transposed, x_row, dw, inputs, inputs});
        for (int o = 0; o < outputs; o++) {
            S partial[LANES] = {};
            for (long n = 0; n < batch.padded; n += LANES)
                for (int lane = 0; lane < LANES; lane++) partial[lane] += dy[o * batch.padded + n + lane];
            db[o] = sum_lanes(partial);
        }
    }

    // ------------------------------------------------------------------------------------------------ forward

    /// Kernels as the tiles read them, outputs innermost: [in][tap][out], and [out][tap][in] for the way back.
    static void pack_kernels(const S* weights, Workspace& ws) {
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

    /// hidden2 = the features z: the network up to and including fc2's ReLU. What only the backward pass needs is found
    /// when `training`.
    static void forward_features(const S* w, Workspace& ws, const Batch& batch, bool training = false) {
        for (int i = 0; i < 2; i++) {
            const Layout& layout = batch.slab[i];
            Slab& slab = ws.slab[i];
            const Out pool1{slab.pool1, layout.pool1}, pool2{ws.pool2 + batch.first(i), layout.pool2};
            const View<Integer> winner1{ws.winner1, {layout.pool1.row, 0, layout.samples}};
            const View<Integer> winner2{ws.winner2 + batch.first(i), layout.pool2};
            if (training) slab.pattern1.find(layout.samples, winner1.step.column);
            if (training) slab.pattern2.find(layout.samples, winner2.step.column);
            // The winners of a row are a row later no longer in the first-level cache.
            const S* const* images = ws.images + batch.first(i);
            const Out x{slab.x, layout.image};
            if (layout.samples > 0) spread_for(0, images, x);
            const auto found1 = [&](int row) {
                if (layout.samples > 0 && row + 1 < Conv1::POOLED) spread_for(row + 1, images, x);
                const long words = Conv1::OUT * Pixels<Conv1>::words(layout.samples);
                if (training) find_won(winner1.rows_from(row), slab.pattern1, ws, slab.won1 + row * words * LANES);
            };
            const auto found2 = [&](int row) {
                const long words = Conv2::OUT * Pixels<Conv2>::words(layout.samples);
                if (training) find_won(winner2.rows_from(row), slab.pattern2, ws, slab.won2 + row * words * LANES);
            };
            conv_pool<Conv1>(x, ws.kernel1, w + Offsets::conv1_b, {ws.rows1, layout.conv1}, pool1,
                             winner1, found1);
            conv_pool<Conv2>(pool1, ws.kernel2, w + Offsets::conv2_b, {ws.rows2, layout.conv2}, pool2, winner2, found2);
        }
        fully_connected(w + Offsets::fc1_w, w + Offsets::fc1_b, ws.pool2, FLAT, ws.hidden1, FC1, batch);
        relu(ws.hidden1, FC1, batch);
        fully_connected(w + Offsets::fc2_w, w + Offsets::fc2_b, ws.hidden1, FC1, ws.hidden2, FC2, batch);
        relu(ws.hidden2, FC2, batch);
    }

    static void forward(const S* w, Workspace& ws, const Batch& batch, bool training = false) {
        forward_features(w, ws, batch, training);
        fully_connected(w + Offsets::fc3_w, w + ws.at.fc3_b, ws.hidden2, FC2, ws.logits, ws.classes, batch);
    }

    /// probability[c][n] = exp(logit[c] − m) / Σ exp(logit − m), m the largest logit; optionally m and the sum.
    static void softmax(const Workspace& ws, const Batch& batch, S* probability, S* largest = nullptr,
                        S* total = nullptr) {
        const long row = batch.padded;
        for (long n = 0; n < row; n += WIDTH) {
            Vec top = load(ws.logits + n), sum = {};
            for (int c = 1; c < ws.classes; c++) top = max(load(ws.logits + c * row + n), top);
            for (int c = 0; c < ws.classes; c++) {
                const Vec e = exp(load(ws.logits + c * row + n) - top);
                store(probability + c * row + n, e);
                sum += e;
            }
            for (int c = 0; c < ws.classes; c++)
                store(probability + c * row + n, load(probability + c * row + n) / sum);
            if (largest) store(largest + n, top);
            if (total) store(total + n, sum);
        }
    }

    // ------------------------------------------------------------------------------------------------ backward

    /// Into d_logits: (softmax − one-hot label) / samples, the gradient of the mean cross-entropy; zero beyond them.
    static void cross_entropy_gradient(const Training<S>& job, const int64_t* order, Workspace& ws,
                                       const Batch& batch) {
        softmax(ws, batch, ws.d_logits);
        for (int n = 0; n < batch.samples; n++)
            ws.d_logits[job.labels[job.positions[order[n]]] * batch.padded + n] -= 1;
        for (int c = 0; c < ws.classes; c++) {
            S* d = ws.d_logits + c * batch.padded;
            for (int n = 0; n < batch.samples; n++) d[n] /= S(batch.samples);
            for (long n = batch.samples; n < batch.padded; n++) d[n] = 0;
        }
    }

    /// fc3, fc2, fc1; `d_features` is added to the gradient of hidden2 (Moon's term) unless it is null.
    static void backward_fully_connected(const S* w, Workspace& ws, const Batch& batch, const S* d_features, S* g) {
        weight_gradient(ws.d_logits, ws.classes, ws.hidden2, FC2, ws.transposed, g + Offsets::fc3_w, g + ws.at.fc3_b,
                        batch);
        input_gradient(w + Offsets::fc3_w, ws.d_logits, ws.classes, ws.d_hidden2, FC2, batch);
        relu_gradient(ws.hidden2, ws.d_hidden2, FC2, batch);
        if (d_features)
            for (long i = 0; i < FC2 * batch.padded; i += WIDTH)
                store(ws.d_hidden2 + i, load(ws.d_hidden2 + i) + load(d_features + i));
        weight_gradient(ws.d_hidden2, FC2, ws.hidden1, FC1, ws.transposed, g + Offsets::fc2_w, g + Offsets::fc2_b,
                        batch);
        input_gradient(w + Offsets::fc2_w, ws.d_hidden2, FC2, ws.d_hidden1, FC1, batch);
        relu_gradient(ws.hidden1, ws.d_hidden1, FC1, batch);
        weight_gradient(ws.d_hidden1, FC1, ws.pool2, FLAT, ws.transposed, g + Offsets::fc1_w, g + Offsets::fc1_b,
                        batch);
        input_gradient(w + Offsets::fc1_w, ws.d_hidden1, FC1, ws.d_pool2, FLAT, batch);
    }

    /// A slab's way back from d_pool2 to the partial sums of both kernels' gradients.
    static void backward_slab(Workspace& ws, Slab& slab, const Layout& layout, const S* const* images, const S* d_pool2,
                              const Integer* winner2) {
        const Out d_conv2{ws.d_conv2 + Layout::MARGIN, layout.conv2_grad}, d_pool1{ws.d_pool1, layout.pool1};
        const int samples = layout.samples, each = samples / LANES;
        arrange_pixels<Conv2>({slab.pool1, layout.pool1}, ws.pixels2);
        kernel_gradient<Conv2>([&](int lane) { return ws.pixels2 + lane * each * Pixels<Conv2>::SAMPLE; },
                               [](int, int) {}, {d_pool2, layout.pool2}, slab.won2, slab.pattern2, ws, ws.partial2);
        if (MANY_REGISTERS && samples % WIDTH == 0) {
            conv2_input_gradient_windows({d_pool2, layout.pool2}, winner2, ws.kernel2_back, ws.shares, d_pool1);
        } else {
            for (int row = 0; row < Conv2::POOLED; row++)
                pool2_row_backward({d_pool2 + row * layout.pool2.row, layout.pool2}, winner2 + row * layout.pool2.row,
                                   d_conv2.rows_from(2 * row));
            conv2_input_gradient(d_conv2, ws.kernel2_back, d_pool1);
        }
        // Copied lane by lane, the images are in the first-level cache when they are needed.
        const auto copied = [&](int lane) {
            for (int i = 0; i < (each ? each : lane == 0 ? samples : 0); i++)
                std::memcpy(ws.pixels1 + i * IMAGE_BYTES, images[each ? i * LANES + lane : i], IMAGE_BYTES * sizeof(S));
            return ws.pixels1.data;
        };
        const auto ahead = [&](int lane, int o) {  // a part of the next lane's images with each output
            constexpr long part = round_up(IMAGE_BYTES / Conv1::OUT, LANES);
            for (int i = 0; i < each && lane + 1 < LANES; i++) prefetch(images[i * LANES + lane + 1] + o * part, part);
        };
        kernel_gradient<Conv1>(copied, ahead, d_pool1, slab.won1, slab.pattern1, ws, ws.partial1);
    }

    /// The gradient of every weight from d_logits.
    static void backward(const S* w, Workspace& ws, const Batch& batch, const S* d_features, S* gradient) {
        backward_fully_connected(w, ws, batch, d_features, gradient);
        std::memset(ws.partial1, 0, PARTIAL1 * sizeof(S));
        std::memset(ws.partial2, 0, PARTIAL2 * sizeof(S));
        for (int i = 0; i < 2; i++)
            if (batch.slab[i].samples > 0)
                backward_slab(ws, ws.slab[i], batch.slab[i], ws.images + batch.first(i), ws.d_pool2 + batch.first(i),
                              ws.winner2 + batch.first(i));
        finish_kernel_gradient<Conv1>(ws.partial1, gradient + Offsets::conv1_w, gradient + Offsets::conv1_b);
        finish_kernel_gradient<Conv2>(ws.partial2, gradient + Offsets::conv2_w, gradient + Offsets::conv2_b);
    }

    /// g ← g + prox_mu·(w − w_g);  v ← momentum·v + g;  w ← w − lr·v − lr·correction.
    /// With correction_in_momentum the correction is added to g instead.
    static void step(const Training<S>& job, long count, const S* global, const S* correction, const S* gradient,
                     S* velocity, S* weights) {
        const Vec minus_lr = fill(S(-job.lr)), momentum = fill(S(job.momentum)), prox = fill(S(job.prox_mu));
        for (long i = 0; i < count; i += WIDTH) {
            Vec w = load(weights + i), g = load(gradient + i);
            if (job.prox_mu != 0) g = fma(prox, w - load(global + i), g);
            if (correction && job.correction_in_momentum) g = g + load(correction + i);
            const Vec v = fma(momentum, load(velocity + i), g);
            w = fma(minus_lr, v, w);
            if (correction && !job.correction_in_momentum) w = fma(minus_lr, load(correction + i), w);
            store(velocity + i, v);
            store(weights + i, w);
        }
    }

    // ------------------------------------------------------------------------------------------------ Moon

    /// ‖z[·][n]‖ for a vector of samples.
    static INLINE Vec feature_norm(const S* z, long row) {
        Vec squares = {};
        for (int f = 0; f < FC2; f++) squares = fma(load(z + f * row), load(z + f * row), squares);
        return square_root(squares);
    }

    /// The gradient of Moon's term with respect to z, where z > 0 (fc2's ReLU). A sample's term is
    /// log(1 + exp((cos(z, z_p) − cos(z, z_g)) / τ)). With D = z_p/‖z_p‖ − z_g/‖z_g‖ the difference of the cosines is
    /// d = (z/‖z‖)·D, so D is all that is needed of the frozen models, and the gradient is
    /// μ/(τ·samples) · σ(d/τ) · (D − d·z/‖z‖) / ‖z‖.
    static void contrastive_gradient(const Training<S>& job, const S* z, const S* difference, const Batch& batch,
                                     S* gradient) {
        const long row = batch.padded;
        const S tau = S(job.moon_tau), share = S(job.moon_mu) / (tau * S(batch.samples));
        const Vec zero = {}, one = fill(1);
        for (long n = 0; n < row; n += WIDTH) {
            const Vec norm = feature_norm(z + n, row), divisor = max(norm, fill(S(COSINE_EPS)));
            const Vec length = norm > zero ? norm : one;
            Vec dot = {};
            for (int f = 0; f < FC2; f++)
                dot = fma(load(z + f * row + n) / divisor, load(difference + f * row + n), dot);
            const Vec sigmoid = one / (one + exp(-dot / tau)), scale = share * sigmoid / divisor;
            for (int f = 0; f < FC2; f++) {
                const Vec value = load(z + f * row + n);
                const Vec across = fma(-dot, value / length, load(difference + f * row + n));
                store(gradient + f * row + n, value > zero ? scale * across : zero);
            }
        }
        for (int f = 0; f < FC2; f++)
            for (long n = batch.samples; n < row; n++) gradient[f * row + n] = 0;
    }

    /// Reads the device's images in order, all mirrored or none, and calls use(batch, first image) for each batch.
    template <class Use>
    static void for_each_batch(const Album& album, bool mirrored, Workspace& ws, Use use) {
        const int64_t count = album.job.n;
        for (int64_t first = 0; first < count; first += FORWARD_BATCH) {
            const Batch batch(int(count - first < FORWARD_BATCH ? count - first : FORWARD_BATCH));
            for (int n = 0; n < batch.samples; n++)
                ws.images[n] = album.get(first + n, mirrored, ws.room + n * IMAGE_BYTES);
            use(batch, first);
        }
    }

    /// difference[mirrored][image][feature] += sign · z/‖z‖ of a frozen model.
    static void add_unit_features(const Album& album, const S* weights, S sign, S* difference) {
        const Training<S>& job = album.job;
        Workspace ws(int(job.classes), FORWARD_BATCH, false);
        pack_kernels(weights, ws);
        for (int mirrored = 0; mirrored <= album.any_mirrored(); mirrored++)
            for_each_batch(album, mirrored, ws, [&](const Batch& batch, int64_t first) {
                forward_features(weights, ws, batch);
                const long row = batch.padded;
                for (long n = 0; n < row; n += WIDTH) {
                    const Vec divisor = max(feature_norm(ws.hidden2 + n, row), fill(S(COSINE_EPS)));
                    for (int f = 0; f < FC2; f++)
                        store(ws.hidden2 + f * row + n, load(ws.hidden2 + f * row + n) / divisor);
                }
                S* to = difference + (mirrored * job.n + first) * FC2;
                for (int n = 0; n < batch.samples; n++)
                    for (int f = 0; f < FC2; f++) to[n * FC2 + f] += sign * ws.hidden2[f * row + n];
            });
    }

    /// Moon's term of a device: D for each of its images, and the gradient for a batch.
    struct Contrast {
        const bool active;  // not before the device has a previous model
        Array<S> difference, batch_difference, gradient;

        Contrast(const Album& album, const Batch& largest)
            : active(album.job.previous && album.job.moon_mu != 0), difference(active ? 2 * album.job.n * FC2 : 0),
              batch_difference(FC2 * largest.padded), gradient(FC2 * largest.padded) {
            if (!active) return;
            add_unit_features(album, album.job.previous, 1, difference);
            add_unit_features(album, album.job.weights, -1, difference);
        }

        const S* batch_gradient(const Training<S>& job, const int64_t* order, const uint8_t* mirror, const S* z,
                                const Batch& batch) {
            if (!active) return nullptr;
            for (int n = 0; n < batch.samples; n++)
                for (int f = 0; f < FC2; f++)
                    batch_difference[f * batch.padded + n] = difference[(mirror[n] * job.n + order[n]) * FC2 + f];
            contrastive_gradient(job, z, batch_difference, batch, gradient);
            return gradient;
        }
    };

    // ------------------------------------------------------------------------------------------------ the two calls

    /// A model's mean cross-entropy over the device's images, not mirrored, and unless null its mean softmax output;
    /// summed in double, in the images' order.
    static void look(const Album& album, const S* weights, double* loss, S* soft_label) {
        const Training<S>& job = album.job;
        Workspace ws(int(job.classes), FORWARD_BATCH, false);
        Array<double> sums(job.classes);
        Array<S> largest(FORWARD_BATCH), total(FORWARD_BATCH);
        double losses = 0;
        pack_kernels(weights, ws);
        for_each_batch(album, false, ws, [&](const Batch& batch, int64_t first) {
            forward(weights, ws, batch);
            softmax(ws, batch, ws.d_logits, largest, total);
            for (int c = 0; c < ws.classes; c++)
                for (int n = 0; n < batch.samples; n++) sums[c] += double(ws.d_logits[c * batch.padded + n]);
            for (int n = 0; n < batch.samples; n++)
                losses += cross_entropy(ws, batch, n, job.labels[job.positions[first + n]], largest, total);
        });
        *loss = losses / double(job.n);
        if (soft_label)
            for (int c = 0; c < ws.classes; c++) soft_label[c] = S(sums[c] / double(job.n));
    }

    /// Of one image, from what softmax gave: ln Σ exp(logit − largest) + largest − its label's logit. A vector at a
    /// time, as it is done on every machine alike; `total` becomes its logarithm with a vector's first image.
    static double cross_entropy(const Workspace& ws, const Batch& batch, int n, int64_t label, const S* largest,
                                S* total) {
        if (n % WIDTH == 0) store(total + n, log(load(total + n)));
        return double(total[n]) + (double(largest[n]) - double(ws.logits[label * batch.padded + n]));
    }

    /// A device's local training and soft label.
    static void train(const Training<S>& job) {
        const int capacity = int(job.batch_size < job.n ? job.batch_size : job.n);
        Workspace ws(int(job.classes), capacity, true);
        const Album album(job);
        if (job.first_loss) look(album, job.weights, job.first_loss, nullptr);
        Contrast contrast(album, ws.full);
        const long count = ws.at.count;
        // Copies, since the steps run over whole vectors.
        Array<S> weights(count), global(count), correction(count), gradient(count), velocity(count);
        std::memcpy(weights, job.weights, count * sizeof(S));
        std::memcpy(global, job.weights, count * sizeof(S));
        if (job.correction) std::memcpy(correction, job.correction, count * sizeof(S));

        for (int64_t epoch = 0; epoch < job.epochs; epoch++)
            for (int64_t first = 0; first < job.n; first += capacity) {
                if (__atomic_load_n(job.stop, __ATOMIC_RELAXED)) return;
                const Batch batch(int(job.n - first < capacity ? job.n - first : capacity));
                const int64_t* order = job.order + epoch * job.n + first;
                const uint8_t* mirror = job.mirror + epoch * job.n + first;
                for (int n = 0; n < batch.samples; n++)
                    ws.images[n] = album.get(order[n], mirror[n], ws.room + n * IMAGE_BYTES);
                pack_kernels(weights, ws);
                forward(weights, ws, batch, true);
                cross_entropy_gradient(job, order, ws, batch);
                const S* d_features = contrast.batch_gradient(job, order, mirror, ws.hidden2, batch);
                backward(weights, ws, batch, d_features, gradient);
                step(job, count, global, job.correction ? correction.data : nullptr, gradient, velocity, weights);
            }
        std::memcpy(job.trained, weights, count * sizeof(S));
        look(album, weights, job.loss, job.soft_label);
    }

    /// How many answers of each class are right (the first of equal logits is the answer), added to `right`, and the
    /// sum of cross-entropies, in order.
    static void evaluate(const uint8_t* images, const int64_t* labels, int64_t count, const float* pixel_values,
                         const S* weights, int classes, int64_t* right, double* loss) {
        Workspace ws(classes, FORWARD_BATCH, false);
        Array<S> largest(FORWARD_BATCH), total(FORWARD_BATCH);
        pack_kernels(weights, ws);
        *loss = 0;
        for (int64_t first = 0; first < count; first += FORWARD_BATCH) {
            const Batch batch(int(count - first < FORWARD_BATCH ? count - first : FORWARD_BATCH));
            for (int n = 0; n < batch.samples; n++) {
                S* image = ws.room + n * IMAGE_BYTES;
                read_image(images + (first + n) * IMAGE_BYTES, false, pixel_values, image);
                ws.images[n] = image;
            }
            forward(weights, ws, batch);
            softmax(ws, batch, ws.d_logits, largest, total);
            for (int n = 0; n < batch.samples; n++) {
                const S* logit = ws.logits + n;
                int answer = 0;
                for (int c = 1; c < classes; c++)
                    if (logit[c * batch.padded] > logit[answer * batch.padded]) answer = c;
                const int64_t label = labels[first + n];
                right[label] += answer == label;
                *loss += cross_entropy(ws, batch, n, label, largest, total);
            }
        }
    }

    /// y[i] = function(x[i]), for tests.
    static void apply(Vec (*function)(Vec), const S* x, S* y, int64_t count) {
        for (int64_t i = 0; i < count; i += WIDTH) {
            Vec v = {};
            for (int64_t k = 0; k < WIDTH && i + k < count; k++) v[k] = x[i + k];
            v = function(v);
            for (int64_t k = 0; k < WIDTH && i + k < count; k++) y[i + k] = v[k];
        }
    }
};

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

#define EXPORT(S, SUFFIX)                                                                                              \
    extern "C" int train_##SUFFIX(const Training<S>* job) {                                                            \
        return guarded([&] { Cnn<S>::train(*job); });                                                                  \
    }                                                                                                                  \
    extern "C" int evaluate_##SUFFIX(const uint8_t* images, const int64_t* labels, int64_t count,                      \
                                     const float* pixel_values, const S* weights, int64_t classes, int64_t* right,     \
                                     double* loss) {                                                                   \
        return guarded(                                                                                                \
            [&] { Cnn<S>::evaluate(images, labels, count, pixel_values, weights, int(classes), right, loss); });       \
    }                                                                                                                  \
    extern "C" void exp_##SUFFIX(const S* x, S* y, int64_t count) { Cnn<S>::apply(Cnn<S>::exp, x, y, count); }         \
    extern "C" void log_##SUFFIX(const S* x, S* y, int64_t count) { Cnn<S>::apply(Cnn<S>::log, x, y, count); }

EXPORT(float, f32)
EXPORT(double, f64)
