// SPDX-License-Identifier: Apache-2.0
// What the functions that `functions.py` prints consist of. It stands before each function and is compiled with it, so it
// includes nothing.
#define FUSED __device__ __forceinline__
namespace fused {

// --- conversions: between the types that are computed in, and of elements in memory from and to these ---

struct half { unsigned short bits; };
struct bfloat16 { unsigned short bits; };

template <typename T> FUSED auto real(T x) -> decltype(x * 1) { return x; }
template <typename T> FUSED auto real(T x) -> decltype(x.x) { return x.x; }
template <typename T> FUSED auto imaginary(T x) -> decltype(x * 1) { return 0; }
template <typename T> FUSED auto imaginary(T x) -> decltype(x.y) { return x.y; }

template <typename From, typename To> FUSED void convert(From x, To& y) { y = static_cast<To>(real(x)); }
template <typename From> FUSED void convert(From x, bool& y) { y = real(x) != 0 || imaginary(x) != 0; }
template <typename From> FUSED void convert(From x, float2& y) { y = {float(real(x)), float(imaginary(x))}; }
template <typename From> FUSED void convert(From x, double2& y) { y = {double(real(x)), double(imaginary(x))}; }
FUSED void convert(half x, float& y) { asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); }
FUSED void convert(bfloat16 x, float& y) { y = __uint_as_float(unsigned(x.bits) << 16); }
FUSED void convert(float x, half& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
FUSED void convert(float x, bfloat16& y) {  // to nearest, ties to even, as no instruction does on every architecture
  const unsigned bits = __float_as_uint(x);
  y.bits = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
template <typename To, typename From> FUSED To to(From x) {
  To y;
  convert(x, y);
  return y;
}

// --- elements in memory ---

template <typename Stored, int V> struct alignas(V * sizeof(Stored) < 16 ? V * sizeof(Stored) : 16) pack { Stored x[V]; };
template <int Bytes> struct word { typedef uint4 type; };
template <> struct word<1> { typedef unsigned char type; };
template <> struct word<2> { typedef unsigned short type; };
template <> struct word<4> { typedef unsigned int type; };
template <> struct word<8> { typedef uint2 type; };

// V neighbours, at an address that is a multiple of their size, or of 16 bytes. Nothing writes there meanwhile: the loads
// of several elements may then be made before any of them is used. Bits of `mask` are set in all that is read.
template <typename Stored, typename T, int V> FUSED void read(const Stored* from, T (&out)[V], unsigned int mask = 0) {
  typedef typename word<alignof(pack<Stored, V>)>::type part;
  union {
    pack<Stored, V> all;
    part parts[sizeof(pack<Stored, V>) / sizeof(part)];
    unsigned int words[(sizeof(pack<Stored, V>) + 3) / 4];
  };
  for (int i = 0; i < sizeof(all) / sizeof(part); ++i) { parts[i] = __ldg(reinterpret_cast<const part*>(from) + i); }
  for (int i = 0; i < sizeof(words) / 4; ++i) { words[i] |= mask; }
  for (int i = 0; i < V; ++i) { out[i] = to<T>(all.x[i]); }
}
template <typename Stored, typename T, int V> FUSED void write(Stored* to_, const T (&value)[V]) {
  pack<Stored, V> all;
  for (int i = 0; i < V; ++i) { all.x[i] = to<Stored>(value[i]); }
  *reinterpret_cast<pack<Stored, V>*>(to_) = all;
}

// Input n in the table of a function's inputs: the address of an array and the number of its rows, or a number.
template <typename Stored> FUSED const Stored* array(const void* table, int n) {
  return reinterpret_cast<const Stored*>(__ldg(static_cast<const unsigned long long*>(table) + 2 * n));
}

// V neighbours in the row that an index means: a negative one counts from the end, as in PyTorch. What is outside is NaN,
// or all bits, for which the table is read: a trap would have each element wait for the one before.
template <typename Stored, typename T, int V>
FUSED void gather(const void* table, int n, long long index, unsigned long long column, unsigned long long columns,
                  T (&out)[V]) {
  const long long rows = __ldg(static_cast<const long long*>(table) + 2 * n + 1), row = index < 0 ? index + rows : index;
  const bool is_inside = 0 <= row && row < rows;
  const Stored *base = array<Stored>(table, n), *outside = static_cast<const Stored*>(table);
  read((rows > 0 ? base : outside) + (is_inside ? row * columns + column : 0), out, is_inside ? 0 : 0xffffffff);
}

// --- operations that are more than an expression of C++ ---

template <typename T> FUSED auto operator+(T a, T b) -> decltype(T{a.x + b.x, a.y + b.y}) { return {a.x + b.x, a.y + b.y}; }
template <typename T> FUSED auto operator-(T a, T b) -> decltype(T{a.x - b.x, a.y - b.y}) { return {a.x - b.x, a.y - b.y}; }
template <typename T> FUSED auto operator-(T a) -> decltype(T{-a.x, -a.y}) { return {-a.x, -a.y}; }
template <typename T> FUSED auto operator*(T a, T b) -> decltype(T{a.x * b.x, a.y * b.y}) {
  return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
using ::fmod;
template <typename T> FUSED T fmod(T a, T b) { return a % b; }
template <typename T> FUSED T remainder(T a, T b) {
  const T rest = fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace fused
#undef FUSED
