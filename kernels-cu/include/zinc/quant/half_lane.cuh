// Where a lane of a quad belongs, for formats whose decoding does not depend on it otherwise.
#pragma once

#include "zinc/platform.cuh"

namespace zinc {

struct HalfLane {
  unsigned half;  // 0 for the first two lanes of the quad
  unsigned side;  // which of the two

  explicit ZINC_DEVICE HalfLane(unsigned lane) : half(lane / 2), side(lane % 2) {}
};

}  // namespace zinc
