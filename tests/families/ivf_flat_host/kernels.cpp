// SPDX-License-Identifier: Apache-2.0
// The kernels of `ivf_flat_batch` for vectors of float, with one metric, filter and post_lambda, as functions of a
// library: grid, block, and the kernel's own arguments.
#include "device.h"

#include <cstddef>

#include "average_rows.cuh"
#include "begin_lists.cuh"
#include "convert_rows.cuh"
#include "count_lists.cuh"
#include "count_rows.cuh"
#include "element_float.cuh"
#include "gather_rows.cuh"
#include "label_rows.cuh"
#include "measure_rows.cuh"
#include "merge_results.cuh"
#include "move_lists.cuh"
#include "narrow_ids.cuh"
#include "pack_bits.cuh"
#include "place_pairs.cuh"
#include "place_rows.cuh"
#include "select_columns.cuh"
#include "select_probed.cuh"
#include "store_rows.cuh"
#include "tiled_scan.cuh"
#include FILTER
#include METRIC
#include POST_LAMBDA

namespace ivf_flat {
uint4 dynamic_shared[8192];  // of the block that runs
}

using namespace ivf_flat;

template <typename... Parameters>
struct launcher {
  void (*kernel)(Parameters...);
  void operator()(unsigned grid, unsigned block, Parameters... arguments) const {
    std::memset(dynamic_shared, 0xa5, sizeof(dynamic_shared));  // which no kernel may take for its own
    host::launch(grid, block, [&] { kernel(arguments...); });
  }
};
template <typename... Parameters>
launcher(void (*)(Parameters...)) -> launcher<Parameters...>;

#define EXPORT(name, kernel)                                                                       \
  template <typename... Parameters>                                                                \
  constexpr auto name##_of(void (*)(Parameters...)) {                                              \
    return +[](unsigned grid, unsigned block, Parameters... arguments) {                           \
      launcher<Parameters...>{kernel}(grid, block, arguments...);                                  \
    };                                                                                             \
  }                                                                                                \
  extern "C" void* name() { return reinterpret_cast<void*>(name##_of(kernel)); }

#define SELECTIONS(capacity)                                                                                     \
  EXPORT(select_probed_##capacity##_ascending, (select_probed<capacity, order::ascending>))                      \
  EXPORT(select_probed_##capacity##_descending, (select_probed<capacity, order::descending>))                    \
  EXPORT(select_columns_##capacity##_ascending, (select_columns<capacity, order::ascending>))                    \
  EXPORT(select_columns_##capacity##_descending, (select_columns<capacity, order::descending>))

// The list of each tile, found by a warp.
static void find_lists(const uint32_t* begins, uint32_t* lists, uint32_t num_lists) {
  lists[blockIdx.x] = find_list(begins, num_lists, blockIdx.x);
}
EXPORT(lists_of_tiles, find_lists)
EXPORT(measure_rows_of_queries, measure_rows)
EXPORT(count_pairs_of_lists, count_lists)
EXPORT(begins_of_lists, begin_lists)
EXPORT(places_of_pairs, place_pairs)
EXPORT(rows_averaged, average_rows)
EXPORT(counts_of_rows, count_rows)
EXPORT(rows_gathered, gather_rows)
EXPORT(labels_of_rows, label_rows)
EXPORT(results_merged, merge_results)
EXPORT(lists_moved, move_lists)
EXPORT(ids_narrowed, narrow_ids)
EXPORT(bits_packed, pack_bits)
EXPORT(places_of_rows, place_rows)
EXPORT(convert_rows_int8, convert_rows<int8_t>)
EXPORT(convert_rows_uint8, convert_rows<uint8_t>)
EXPORT(convert_rows_float32, convert_rows<float>)
EXPORT(store_rows_uint8_t, store_rows<uint8_t>)
EXPORT(store_rows_uint16_t, store_rows<uint16_t>)
EXPORT(store_rows_uint32_t, store_rows<uint32_t>)
EXPORT(tiled_scan_1_false, (tiled_scan<float, float, 1, false>))
EXPORT(tiled_scan_4_false, (tiled_scan<float, float, 4, false>))
EXPORT(tiled_scan_1_true, (tiled_scan<float, float, 1, true>))
EXPORT(tiled_scan_4_true, (tiled_scan<float, float, 4, true>))
SELECTIONS(1)
SELECTIONS(4)
SELECTIONS(16)
SELECTIONS(64)
SELECTIONS(256)
