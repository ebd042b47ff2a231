// Independent chains of fused multiply-adds, more of them than hide their latency: what a core can do at most.

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
using Vector = __m512;
constexpr int CHAINS = 24;
constexpr char INSTRUCTIONS[] = "AVX-512";
inline Vector all(float value) { return _mm512_set1_ps(value); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__FMA__)
using Vector = __m256;
constexpr int CHAINS = 12;  // of 16 registers
constexpr char INSTRUCTIONS[] = "AVX2";
inline Vector all(float value) { return _mm256_set1_ps(value); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(__aarch64__)
using Vector = float32x4_t;
constexpr int CHAINS = 24;
constexpr char INSTRUCTIONS[] = "NEON";
inline Vector all(float value) { return vdupq_n_f32(value); }
inline Vector fma(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
#endif

volatile float half = 0.5f, one = 1.0f;  // unknown to the compiler, or it would compute the result itself
volatile float sink;

}  // namespace

extern "C" const char* instructions() { return INSTRUCTIONS; }

// Floating-point operations done, two for each multiply-add.
extern "C" int64_t multiply_add(int64_t steps) {
  const Vector factor = all(half), term = all(one);
  Vector chain[CHAINS];
  for (int i = 0; i < CHAINS; i++) chain[i] = all(float(i));
  for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS; i++) chain[i] = fma(chain[i], factor, term);
  }
  for (int i = 1; i < CHAINS; i++) chain[0] = fma(chain[0], factor, chain[i]);
  float first[sizeof(Vector) / sizeof(float)];
  __builtin_memcpy(first, &chain[0], sizeof first);
  sink = first[0];
  return steps * CHAINS * int64_t(2 * sizeof(Vector) / sizeof(float));
}
