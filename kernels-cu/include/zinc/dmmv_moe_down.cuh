// The down projections of all experts of one token, weighted and summed in one pass: a block owns rows of the result
// and goes through all experts for them, so that nothing is added atomically.
#pragma once

#include "zinc/dmmv_moe.cuh"

namespace zinc {

// A slot's weight: the router's, times the expert's own factor where there is one. It becomes a float where it is used,
// so that nothing waits for its parts before.
struct RouterWeights {
  using Weight = float;

  const uint32_t* routing;
  uint32_t used;

  ZINC_DEVICE Weight of(uint32_t slot) const { return __uint_as_float(routing[used + slot]); }
};

struct ScaledRouterWeights {
  struct Weight {
    float router;
    float expert;

    ZINC_DEVICE operator float() const { return router * expert; }
  };

  const uint32_t* routing;
  uint32_t used;
  const float* expert_scales;

  ZINC_DEVICE Weight of(uint32_t slot) const {
    return {__uint_as_float(routing[used + slot]), expert_scales[routing[slot]]};
  }
};

// As StoreRow for one vector, with the old value read before it is needed.
struct StoreExpected {
  StoreRow store;
  float old = 0.0f;

  ZINC_DEVICE void expect(uint32_t r) {
    if (store.add) old = store.y[r];
  }
  ZINC_DEVICE void operator()(uint32_t r, unsigned, const float (&sums)[1]) const {
    store.y[r] = store.add ? old + sums[0] : sums[0];
  }
};

template <bool wide, class Shape, class Tile, class Weights, class Push>
ZINC_DEVICE void moe_down_loading(Tile& tile, const uint8_t* weights, const uint8_t* x, const Weights& router,
                                  const Push& p, StoreRow finish) {
  using Format = typename Tile::Format;
  Activations<Tile, Shape::threads> activations(tile, p.k, {nullptr, 0, 0});
  const uint8_t* const expert0[] = {weights};
  for_row_groups<Shape>(
      expert0, row_bytes<Format>(p.k), p.m, blockIdx.x, gridDim.x,
      [&](float (&sum)[Shape::rows][1], const uint8_t* const(&row0)[Shape::rows]) {
        for (uint32_t slot = 0; slot < p.n_used; ++slot) {
          const uint64_t expert = uint64_t{router.routing[slot]} * p.expert_stride;
          const uint8_t* row[Shape::rows];
          float product[Shape::rows][1] = {};
#pragma unroll
          for (unsigned r = 0; r < Shape::rows; ++r) row[r] = row0[r] + expert;
          activations.retarget({at_byte<float>(x, p.x_offset) + uint64_t{slot} * p.x_expert_stride, 0, 1});
          dot_rows<wide>(product, row, activations);
          // The lanes' shares are weighted before they are summed, which saves a reduction per slot.
          const float weight = router.of(slot);
#pragma unroll
          for (unsigned r = 0; r < Shape::rows; ++r) sum[r][0] = fmaf(weight, product[r][0], sum[r][0]);
        }
      },
      finish);
}

// s[r] = sum over slots j of weight(j) * (row r of expert routing[j] times the vector at x + j x_expert_stride), which
// finish gets.
template <class Shape, class Tile, class Weights, class Push>
ZINC_DEVICE void moe_down(Tile& tile, const uint8_t* weights, const uint8_t* x, const Weights& router, const Push& p,
                          StoreRow finish) {
  using Format = typename Tile::Format;
  if constexpr (Format::wide_alignment > Format::alignment) {
    if (is_aligned(weights, Format::wide_alignment) && p.expert_stride % Format::wide_alignment == 0) {
      moe_down_loading<true, Shape>(tile, weights, x, router, p, finish);
      return;
    }
  }
  moe_down_loading<false, Shape>(tile, weights, x, router, p, finish);
}

}  // namespace zinc
