// Expert products over route-packed token columns: each work-list entry names an expert and eight neighbouring
// positions of its route list, whose vectors share one reading of the expert's matrix.
#pragma once

#include "zinc/dmmv.cuh"

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

// Grid: x over row groups, y over work-list entries; both are walked with the grid's stride.
template <class Format, class Shape, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_moe_cols(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* counts,
                               const uint32_t* packed_ids, const uint32_t* active_blocks, const Push& p) {
  static_assert(Shape::vectors == entry_routes);
  constexpr uint32_t unused = 0xFFFFFFFFu;
  using Tile = ActivationTile<Format, tile_columns, entry_routes>;
  ZINC_SHARED(Tile, tile);
  Activations<Tile, Shape::threads, RoutedVectors> activations(tile, p.k, {nullptr, nullptr, 0, 1, p.k});
  for (uint32_t b = blockIdx.y; b < p.n_blocks; b += gridDim.y) {
    const uint32_t entry = active_blocks[b];
    if (entry == unused) continue;
    const uint32_t expert = entry & 0xFFFFu;
    const uint32_t first = (entry >> 16) * entry_routes;
    const uint32_t listed = counts[expert];
    if (first >= listed) continue;
    const uint32_t* const routes = packed_ids + uint64_t{expert} * p.ids_stride + first;
    const uint32_t count = min(listed - first, entry_routes);
    activations.retarget({at_byte<float>(x, p.x_offset), routes, count, max(p.x_route_divisor, 1u), p.k});
    const uint8_t* const matrix[] = {weights + p.a_offset + uint64_t{expert} * p.expert_stride};
    matvec<Shape>(matrix, p.m, activations, blockIdx.x, gridDim.x,
                  StoreRoutes{at_byte<float>(y, p.y_offset), routes, count, p.m, p.accumulate != 0});
  }
}

}  // namespace zinc
