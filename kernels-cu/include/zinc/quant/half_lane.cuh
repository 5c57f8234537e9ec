// What formats share whose decoding depends on no more of a lane than its place in the quad.
#pragma once

#include "zinc/dmmv_planes.cuh"

namespace zinc {

// Where a lane of a quad belongs.
struct HalfLane {
  unsigned half;  // 0 for the first two lanes of the quad
  unsigned side;  // which of the two

  explicit ZINC_DEVICE HalfLane(unsigned lane, bool) : half(lane / 2), side(lane % 2) {}
};

// The factors where they are the scales of the lane's blocks.
template <class Fragment>
struct SetScales {
  float scale[step_sets];

  ZINC_DEVICE SetScales(const Fragment& f, const HalfLane&) {
#pragma unroll
    for (unsigned s = 0; s < step_sets; ++s) scale[s] = f.scale[s];
  }
};

}  // namespace zinc
