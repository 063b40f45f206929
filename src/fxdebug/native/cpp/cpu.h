// One loop compiled for several processors, and the choice among them when the program runs: a build may lie in a home
// folder that machines share. Write the loop as a template with FXDEBUG_INLINE, and a function with each FXDEBUG_FOR_….
#pragma once

namespace fxdebug {

#define FXDEBUG_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__clang__)
#define FXDEBUG_FOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"), min_vector_width(512)))
#define FXDEBUG_FOR_AVX2 __attribute__((target("avx2,fma")))
#elif defined(__x86_64__)
#define FXDEBUG_FOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")))
#define FXDEBUG_FOR_AVX2 __attribute__((target("avx2,fma")))
#else  // the compiler's own vectors (NEON, …) do
#define FXDEBUG_FOR_AVX512
#define FXDEBUG_FOR_AVX2
#endif

enum class Cpu { kAny, kAvx2, kAvx512 };

// The widest vectors that this processor has.
inline Cpu cpu() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has_avx512 ? Cpu::kAvx512 : has_avx2 ? Cpu::kAvx2 : Cpu::kAny;
#else
  return Cpu::kAny;
#endif
}

}  // namespace fxdebug
