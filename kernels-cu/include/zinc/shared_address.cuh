// Accesses to shared memory by an address that a thread keeps in one register. The compiler otherwise rebuilds the
// address of a shared array, whose window the hardware places, wherever it runs short of registers, inside loops too.
#pragma once

#include "zinc/async_copy.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// `value` in a register of its own: what comes out of a shuffle cannot be computed anew. All lanes call it together.
// What is used a few times only is not worth it: then `hold` is false.
ZINC_DEVICE uint32_t held(uint32_t value, [[maybe_unused]] bool hold = true) {
#ifdef ZINC_EMULATOR
  return value;
#else
  return hold ? static_cast<uint32_t>(__shfl_sync(full_warp, value, lane_id())) : value;
#endif
}

// `p`, of which the compiler does not know where it came from, so that it goes on from there.
ZINC_DEVICE const uint8_t* opaque(const uint8_t* p) {
#ifndef ZINC_EMULATOR
  asm("" : "+l"(p));
#endif
  return p;
}

class SharedAddress {
  SharedPlace at_;

#ifndef ZINC_EMULATOR
  explicit ZINC_DEVICE SharedAddress(SharedPlace at) : at_(at) {}
#endif

 public:
  // All lanes of the warp call it together.
#ifdef ZINC_EMULATOR
  explicit SharedAddress(const uint8_t* shared, bool = true) : at_(const_cast<uint8_t*>(shared)) {}
#else
  explicit ZINC_DEVICE SharedAddress(const uint8_t* shared, bool hold = true)
      : at_(held(static_cast<uint32_t>(__cvta_generic_to_shared(shared)), hold)) {}
#endif

  ZINC_DEVICE SharedAddress operator+(uint32_t bytes) const { return SharedAddress(at_ + bytes); }

  // What lies there; the address is aligned to the size of what is read. A read stays behind the barriers before it.
  ZINC_DEVICE uint4 load4() const {
#ifdef ZINC_EMULATOR
    return *reinterpret_cast<const uint4*>(at_);
#else
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at_));
    return v;
#endif
  }
  ZINC_DEVICE uint2 load2() const {
#ifdef ZINC_EMULATOR
    return *reinterpret_cast<const uint2*>(at_);
#else
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at_));
    return v;
#endif
  }
  ZINC_DEVICE uint32_t load() const {
#ifdef ZINC_EMULATOR
    return *reinterpret_cast<const uint32_t*>(at_);
#else
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at_));
    return v;
#endif
  }
  ZINC_DEVICE uint16_t load_half() const {
#ifdef ZINC_EMULATOR
    return *reinterpret_cast<const uint16_t*>(at_);
#else
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at_));
    return v;
#endif
  }
  ZINC_DEVICE uint32_t load_byte() const {
#ifdef ZINC_EMULATOR
    return *at_;
#else
    uint32_t v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(at_));
    return v;
#endif
  }

  ZINC_DEVICE void store(uint32_t v) const {
#ifdef ZINC_EMULATOR
    memcpy(at_, &v, sizeof v);
#else
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(at_), "r"(v) : "memory");
#endif
  }

  ZINC_DEVICE void store_byte(uint8_t v) const {
#ifdef ZINC_EMULATOR
    *at_ = v;
#else
    asm volatile("st.shared.u8 [%0], %1;" : : "r"(at_), "h"(static_cast<uint16_t>(v)) : "memory");
#endif
  }

  // Sets 16 bytes to zero.
  ZINC_DEVICE void clear16() const {
#ifdef ZINC_EMULATOR
    memset(at_, 0, 16);
#else
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" : : "r"(at_), "r"(0) : "memory");
#endif
  }

  // Starts a copy of 4 bytes of global memory to here, both 4-byte aligned.
  ZINC_DEVICE void copy4(const uint8_t* from) const { async_copy<4>(at_, from); }
  // Starts a copy of 16 bytes of global memory to here, both 16-byte aligned.
  template <bool cached>
  ZINC_DEVICE void copy16(const uint8_t* from) const {
    async_copy_passing<cached>(at_, from);
  }
};

}  // namespace zinc
