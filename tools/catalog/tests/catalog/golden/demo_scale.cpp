// Generated from the catalog; do not edit.
#include "zinc/platform.cuh"
namespace {
namespace zinc {
using namespace ::zinc;
}
#include "demo/demo_scale.cu"
}  // namespace
ZINC_EMULATOR_ENTRY(demo_scale)
