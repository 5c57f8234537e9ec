// Expert products over route-packed token columns: each work-list entry names an expert and eight neighbouring
// positions of its route list, whose vectors share one reading of the expert's matrix.
#pragma once

#include "zinc/dmmv_tiles.cuh"

namespace zinc {

constexpr unsigned entry_routes = 8;

// The vectors of up to eight routes: route q reads the k floats at x + (q / divisor) k.
struct RoutedVectors {
  const float* x;
  const uint32_t* routes;
  uint32_t count;
  uint32_t divisor;
  uint32_t k;

  ZINC_DEVICE float4 four(unsigned v, uint32_t c) const {
    if (v >= count) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return ActivationVectors{x + uint64_t{__ldg(routes + v) / divisor} * k, 0, 1}.four(0, c);
  }
};

// Stores the result of route q at y + q m, or adds it to what is there.
struct StoreRoutes {
  float* y;
  const uint32_t* routes;
  uint32_t count;
  uint32_t m;
  bool add;

  ZINC_DEVICE void operator()(uint32_t r, unsigned v, const float (&dots)[1]) const {
    if (v >= count) return;
    float* const at = y + uint64_t{__ldg(routes + v)} * m + r;
    *at = add ? *at + dots[0] : dots[0];
  }
};

// Does work(matrix, first route, number of routes) for the entries of the work list. Grid: y over entries, which are
// walked with the grid's stride.
template <class Push, class Work>
ZINC_DEVICE void for_entries(const uint8_t* weights, const uint32_t* counts, const uint32_t* packed_ids,
                             const uint32_t* active_blocks, const Push& p, Work work) {
  constexpr uint32_t unused = 0xFFFFFFFFu;
  for (uint32_t b = blockIdx.y; b < p.n_blocks; b += gridDim.y) {
    const uint32_t entry = active_blocks[b];
    if (entry == unused) continue;
    const uint32_t expert = entry & 0xFFFFu;
    const uint32_t first = (entry >> 16) * entry_routes;
    const uint32_t listed = counts[expert];
    if (first >= listed) continue;
    const uint8_t* const matrix[] = {weights + p.a_offset + uint64_t{expert} * p.expert_stride};
    work(matrix, packed_ids + uint64_t{expert} * p.ids_stride + first, min(listed - first, entry_routes));
  }
}

// The products of the routes of all entries on the tensor cores where experts, columns and activations allow it, else
// in f32, for at most `vectors` routes at a time. Grid: x over tiles, y over entries; both are walked with the grid's
// stride.
template <class Tiles, class Shape, unsigned vectors, unsigned rows, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_moe_cols(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* counts,
                               const uint32_t* packed_ids, const uint32_t* active_blocks, const Push& p) {
  constexpr unsigned few = 4;
  static_assert(vectors == few || vectors == entry_routes);
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  bool used = false;
  for_entries(weights, counts, packed_ids, active_blocks, p,
              [&](const uint8_t* const(&matrix)[1], const uint32_t* routes, uint32_t count) {
                for (uint32_t done = 0; done < count;) {
                  const uint32_t left = count - done;
                  // The last readers of the vectors before may still be at them.
                  if (used) __syncthreads();
                  used = true;
                  const RoutedVectors source{at_byte<float>(x, p.x_offset), routes + done, left,
                                             max(p.x_route_divisor, 1u), p.k};
                  const StoreRoutes store{at_byte<float>(y, p.y_offset), routes + done, left, p.m, p.accumulate != 0};
                  if (vectors > few && left > few) {
                    matvec_tiles<Tiles, typename Shape::template With<vectors>, rows, tile_columns>(
                        memory, matrix, p.m, p.k, source, blockIdx.x, gridDim.x, store);
                    done += vectors;
                  } else {
                    matvec_tiles<Tiles, typename Shape::template With<few>, rows, tile_columns>(
                        memory, matrix, p.m, p.k, source, blockIdx.x, gridDim.x, store);
                    done += few;
                  }
                }
              });
}

}  // namespace zinc
