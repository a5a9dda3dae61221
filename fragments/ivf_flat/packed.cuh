// SPDX-License-Identifier: Apache-2.0
// Veclen consecutive components of a vector, as one access reads them.
#pragma once

#include "types.cuh"

namespace ivf_flat {

// One component, or 16 bytes of them, the widest access. Except for float, 16 bytes are kept as four words of bits:
// arrays of bytes in registers would be unpacked again, one byte per instruction.
template <typename T, int Veclen>
struct packed {
  static_assert(Veclen * sizeof(T) == 16, "several components are one access of 16 bytes");
  using type = uint4;
};
template <typename T>
struct packed<T, 1> { using type = T; };
template <>
struct packed<float, 4> { using type = float4; };

template <typename T, int Veclen>
using packed_t = typename packed<T, Veclen>::type;

// The arithmetic of a data type on packed components; `element_<type>.cuh` specialises it:
//
//   add_product(sum, a, b)             sum + Σ aᵢ·bᵢ
//   add_squared_difference(sum, a, b)  sum + Σ (aᵢ − bᵢ)²
//
// for one component and for 16 bytes of them, in the type of the accumulator.
template <typename T>
struct element;

}  // namespace ivf_flat
