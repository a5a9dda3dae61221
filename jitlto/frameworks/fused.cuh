// SPDX-License-Identifier: Apache-2.0
// What the functions that `functions.py` prints consist of. An operation means what PyTorch's of its name does. It stands
// before each function and is compiled with it, so it includes nothing.
namespace fused {

// --- elements in memory, and the types that they are computed in ---

struct half { unsigned short bits; };
struct bfloat16 { unsigned short bits; };

template <typename Stored> struct computed { typedef Stored type; };
template <> struct computed<half> { typedef float type; };
template <> struct computed<bfloat16> { typedef float type; };
template <> struct computed<signed char> { typedef int type; };
template <> struct computed<unsigned char> { typedef int type; };
template <> struct computed<short> { typedef int type; };
template <typename Stored> using computed_t = typename computed<Stored>::type;

template <typename Stored> __device__ __forceinline__ computed_t<Stored> widen(Stored x) { return x; }
__device__ __forceinline__ float widen(half x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
__device__ __forceinline__ float widen(bfloat16 x) { return __uint_as_float(unsigned(x.bits) << 16); }

template <typename Stored> struct narrowed {
  static __device__ __forceinline__ Stored of(computed_t<Stored> x) { return static_cast<Stored>(x); }
};
template <> struct narrowed<half> {
  static __device__ __forceinline__ half of(float x) {
    half narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
  }
};
template <> struct narrowed<bfloat16> {  // to nearest, ties to even: there is no instruction before sm_80
  static __device__ __forceinline__ bfloat16 of(float x) {
    const unsigned bits = __float_as_uint(x);
    return {static_cast<unsigned short>(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  }
};
// The element as it would be read from memory again.
template <typename Stored> __device__ __forceinline__ computed_t<Stored> rounded(computed_t<Stored> x) {
  return widen(narrowed<Stored>::of(x));
}

template <typename Stored, int V> struct alignas(V * sizeof(Stored) < 16 ? V * sizeof(Stored) : 16) pack { Stored x[V]; };
template <int Bytes> struct word { typedef uint4 type; };
template <> struct word<1> { typedef unsigned char type; };
template <> struct word<2> { typedef unsigned short type; };
template <> struct word<4> { typedef unsigned int type; };
template <> struct word<8> { typedef uint2 type; };

// V neighbours, at an address that is a multiple of their size, or of 16 bytes. Nothing writes there meanwhile: the loads
// of several elements may then be made before any of them is used. Bits of `mask` are set in all that is read.
template <typename Stored, int V>
__device__ __forceinline__ void read(const void* base, unsigned long long place, computed_t<Stored> (&out)[V],
                                     unsigned int mask = 0) {
  typedef typename word<alignof(pack<Stored, V>)>::type part;
  union {
    pack<Stored, V> all;
    part parts[sizeof(pack<Stored, V>) / sizeof(part)];
    unsigned int words[(sizeof(pack<Stored, V>) + 3) / 4];
  };
  const part* from = reinterpret_cast<const part*>(static_cast<const Stored*>(base) + place);
#pragma unroll
  for (int i = 0; i < sizeof(all) / sizeof(part); ++i) { parts[i] = __ldg(from + i); }
#pragma unroll
  for (int i = 0; i < sizeof(words) / 4; ++i) { words[i] |= mask; }
#pragma unroll
  for (int i = 0; i < V; ++i) { out[i] = widen(all.x[i]); }
}
template <typename Stored, int V>
__device__ __forceinline__ void write(void* base, unsigned long long place, const computed_t<Stored> (&value)[V]) {
  pack<Stored, V> all;
#pragma unroll
  for (int i = 0; i < V; ++i) { all.x[i] = narrowed<Stored>::of(value[i]); }
  *reinterpret_cast<pack<Stored, V>*>(static_cast<Stored*>(base) + place) = all;
}

// Entry n of the table of a function's inputs: the addresses of arrays, and behind them numbers.
__device__ __forceinline__ const void* address(const void* table, int n) {
  return reinterpret_cast<const void*>(__ldg(static_cast<const unsigned long long*>(table) + n));
}
__device__ __forceinline__ double number(const void* table, int n) { return __ldg(static_cast<const double*>(table) + n); }

// --- conversions ---

template <typename To> struct converted {
  template <typename From> static __device__ __forceinline__ To of(From x) { return static_cast<To>(x); }
  static __device__ __forceinline__ To of(float2 x) { return static_cast<To>(x.x); }
  static __device__ __forceinline__ To of(double2 x) { return static_cast<To>(x.x); }
};
template <> struct converted<bool> {
  template <typename From> static __device__ __forceinline__ bool of(From x) { return x != 0; }
  static __device__ __forceinline__ bool of(float2 x) { return x.x != 0 || x.y != 0; }
  static __device__ __forceinline__ bool of(double2 x) { return x.x != 0 || x.y != 0; }
};
template <typename Complex, typename Real> struct converted_complex {
  template <typename From> static __device__ __forceinline__ Complex of(From x) { return {static_cast<Real>(x), 0}; }
  static __device__ __forceinline__ Complex of(float2 x) { return {x.x, x.y}; }
  static __device__ __forceinline__ Complex of(double2 x) { return {static_cast<Real>(x.x), static_cast<Real>(x.y)}; }
};
template <> struct converted<float2> : converted_complex<float2, float> {};
template <> struct converted<double2> : converted_complex<double2, double> {};
template <typename To, typename From> __device__ __forceinline__ To to(From x) { return converted<To>::of(x); }

// V neighbours in the row that an index means: a negative one counts from the end, as in PyTorch. What is outside is NaN,
// or all bits: a trap would have each element wait for the one before.
template <typename Stored, int V>
__device__ __forceinline__ void gather(const void* base, long long index, double rows, unsigned long long column,
                                       unsigned long long columns, computed_t<Stored> (&out)[V]) {
  const long long count = static_cast<long long>(rows), row = index < 0 ? index + count : index;
  const bool is_inside = 0 <= row && row < count;
  read<Stored>(base, (is_inside ? row : 0) * columns + column, out, is_inside ? 0 : 0xffffffff);
}

// --- operations ---

#define FUSED_UNARY(name, ...) \
  template <typename T> __device__ __forceinline__ T name(T a) { return __VA_ARGS__; }
#define FUSED_BINARY(name, ...) \
  template <typename T> __device__ __forceinline__ T name(T a, T b) { return __VA_ARGS__; }
#define FUSED_COMPLEX(T)                                                                            \
  __device__ __forceinline__ T operator+(T a, T b) { return {a.x + b.x, a.y + b.y}; }               \
  __device__ __forceinline__ T operator-(T a, T b) { return {a.x - b.x, a.y - b.y}; }               \
  __device__ __forceinline__ T operator-(T a) { return {-a.x, -a.y}; }                              \
  __device__ __forceinline__ T operator*(T a, T b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }

FUSED_COMPLEX(float2)
FUSED_COMPLEX(double2)
FUSED_UNARY(neg, -a)
FUSED_UNARY(abs, a < 0 ? -a : a == 0 ? T(0) : a)
FUSED_UNARY(sign, T((0 < a) - (a < 0)))
FUSED_UNARY(relu, a < 0 ? T(0) : a)
FUSED_UNARY(reciprocal, 1 / a)
FUSED_UNARY(sigmoid, 1 / (1 + ::exp(-a)))
FUSED_UNARY(round, ::rint(a))
FUSED_UNARY(bitwise_not, ~a)
__device__ __forceinline__ bool bitwise_not(bool a) { return !a; }
__device__ __forceinline__ bool logical_not(bool a) { return !a; }
template <typename T> __device__ __forceinline__ bool isnan(T a) { return a != a; }
template <typename T> __device__ __forceinline__ bool isinf(T a) { return a - a != a - a && a == a; }
template <typename T> __device__ __forceinline__ T where(bool condition, T a, T b) { return condition ? a : b; }
FUSED_BINARY(maximum, a > b || a != a ? a : b)
FUSED_BINARY(minimum, a < b || a != a ? a : b)
FUSED_BINARY(div_floor, a / b - (a % b != 0 && (a < 0) != (b < 0)))
FUSED_BINARY(fmod, a % b)
__device__ __forceinline__ float fmod(float a, float b) { return ::fmodf(a, b); }
__device__ __forceinline__ double fmod(double a, double b) { return ::fmod(a, b); }
template <typename T> __device__ __forceinline__ T remainder(T a, T b) {
  const T rest = fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace fused
