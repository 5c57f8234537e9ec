// Shuffles, votes, matches and reductions over the lanes of a warp. Every one of them is a rendezvous of exactly the
// lanes in its mask: bits of lanes that the block does not have (the last warp of a block size that is no multiple of
// 32) are ignored, as the hardware does; a lane that has exited or waits elsewhere is an error.
#pragma once

#define ZINC_EMULATOR_SITE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

namespace zinc_emulator {

struct ShuffleArgs {
  uint64_t value;
  unsigned source;
};

// Leaves in each lane the value of its source lane: its own where the source is the lane itself, poison where the
// source takes no part.
inline void run_shuffle(Lanes& lanes) {
  uint64_t values[warp_lanes];
  const uint64_t undefined = lanes.poison | static_cast<uint64_t>(lanes.poison) << 32;
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    values[lane] = lanes.has(lane) ? static_cast<ShuffleArgs*>(lanes.args[lane])->value : undefined;
  }
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if (!lanes.has(lane)) continue;
    ShuffleArgs& args = *static_cast<ShuffleArgs*>(lanes.args[lane]);
    args.value = values[args.source];
  }
}

struct VoteArgs {
  uint64_t value;
  uint64_t result;
  int all;
};

template <class F>
inline void each_lane(Lanes& lanes, F f) {
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    if (lanes.has(lane)) f(lane, *static_cast<VoteArgs*>(lanes.args[lane]));
  }
}

inline void run_nothing(Lanes&) {}

inline void run_ballot(Lanes& lanes) {
  uint32_t ballot = 0;
  each_lane(lanes, [&](unsigned lane, VoteArgs& args) { ballot |= static_cast<uint32_t>(args.value != 0) << lane; });
  each_lane(lanes, [&](unsigned, VoteArgs& args) { args.result = ballot; });
}

inline void run_match_any(Lanes& lanes) {
  each_lane(lanes, [&](unsigned, VoteArgs& mine) {
    uint32_t equal = 0;
    each_lane(lanes, [&](unsigned lane, VoteArgs& other) {
      equal |= static_cast<uint32_t>(other.value == mine.value) << lane;
    });
    mine.result = equal;
  });
}

inline void run_match_all(Lanes& lanes) {
  run_match_any(lanes);
  each_lane(lanes, [&](unsigned, VoteArgs& args) {
    args.all = args.result == lanes.present;
    args.result = args.all ? lanes.present : 0;
  });
}

// Reduces the lanes' 32-bit values as numbers of type T with `combine`.
template <class T, class Combine>
inline void run_reduce(Lanes& lanes) {
  T total{};
  bool first = true;
  each_lane(lanes, [&](unsigned, VoteArgs& args) {
    const T value = static_cast<T>(static_cast<uint32_t>(args.value));
    total = first ? value : Combine::of(total, value);
    first = false;
  });
  each_lane(lanes, [&](unsigned, VoteArgs& args) { args.result = static_cast<uint32_t>(total); });
}

struct Add {
  static uint32_t of(uint32_t a, uint32_t b) { return a + b; }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    return a < b ? b : a;
  }
};
struct And {
  static uint32_t of(uint32_t a, uint32_t b) { return a & b; }
};
struct Or {
  static uint32_t of(uint32_t a, uint32_t b) { return a | b; }
};
struct Xor {
  static uint32_t of(uint32_t a, uint32_t b) { return a ^ b; }
};

inline constexpr Collective shuffle_index = {"__shfl_sync", run_shuffle};
inline constexpr Collective shuffle_up = {"__shfl_up_sync", run_shuffle};
inline constexpr Collective shuffle_down = {"__shfl_down_sync", run_shuffle};
inline constexpr Collective shuffle_xor = {"__shfl_xor_sync", run_shuffle};
inline constexpr Collective sync_warp = {"__syncwarp", run_nothing};
inline constexpr Collective ballot = {"__ballot_sync", run_ballot};
inline constexpr Collective vote_any = {"__any_sync", run_ballot};
inline constexpr Collective vote_all = {"__all_sync", run_ballot};
inline constexpr Collective match_any = {"__match_any_sync", run_match_any};
inline constexpr Collective match_all = {"__match_all_sync", run_match_all};
inline constexpr Collective reduce_add = {"__reduce_add_sync", run_reduce<uint32_t, Add>};
inline constexpr Collective reduce_min_u32 = {"__reduce_min_sync", run_reduce<uint32_t, Min>};
inline constexpr Collective reduce_max_u32 = {"__reduce_max_sync", run_reduce<uint32_t, Max>};
inline constexpr Collective reduce_min_s32 = {"__reduce_min_sync", run_reduce<int32_t, Min>};
inline constexpr Collective reduce_max_s32 = {"__reduce_max_sync", run_reduce<int32_t, Max>};
inline constexpr Collective reduce_and = {"__reduce_and_sync", run_reduce<uint32_t, And>};
inline constexpr Collective reduce_or = {"__reduce_or_sync", run_reduce<uint32_t, Or>};
inline constexpr Collective reduce_xor = {"__reduce_xor_sync", run_reduce<uint32_t, Xor>};

inline unsigned lane_index() { return zinc_emulator_current->lane; }

template <class T>
inline T shuffle(const Collective& operation, unsigned mask, T value, unsigned source, const char* file,
                 unsigned line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  ShuffleArgs args = {0, source};
  memcpy(&args.value, &value, sizeof value);
  warp_collective(operation, mask, args, file, line);
  memcpy(&value, &args.value, sizeof value);
  return value;
}

// The first lane of the calling lane's segment of `width` lanes.
inline unsigned segment(int width, const char* file, unsigned line) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    fail("the width of a shuffle is a power of two from 1 to 32", file, line);
  }
  return lane_index() & ~(static_cast<unsigned>(width) - 1);
}

inline uint64_t vote(const Collective& operation, unsigned mask, uint64_t value, const char* file, unsigned line) {
  VoteArgs args = {value, 0, 0};
  warp_collective(operation, mask, args, file, line);
  return args.result;
}

}  // namespace zinc_emulator

inline void __syncwarp(unsigned mask = 0xffffffffu, ZINC_EMULATOR_SITE) {
  zinc_emulator::vote(zinc_emulator::sync_warp, mask, 0, file, line);
}

// As on hardware: an index is taken modulo width; up, down and xor that leave the segment give the lane its own value,
// except that xor may reach an earlier segment. Deltas and lane masks are five bits wide.
#define ZINC_EMULATOR_SHUFFLES(T)                                                                                   \
  inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, ZINC_EMULATOR_SITE) {                    \
    const unsigned first = zinc_emulator::segment(width, file, line);                                               \
    const unsigned from = first | (static_cast<unsigned>(source) & (static_cast<unsigned>(width) - 1));             \
    return zinc_emulator::shuffle(zinc_emulator::shuffle_index, mask, value, from, file, line);                     \
  }                                                                                                                 \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, ZINC_EMULATOR_SITE) {             \
    const unsigned first = zinc_emulator::segment(width, file, line);                                               \
    const unsigned lane = zinc_emulator::lane_index();                                                              \
    const unsigned from = first + (delta & 31) <= lane ? lane - (delta & 31) : lane;                                \
    return zinc_emulator::shuffle(zinc_emulator::shuffle_up, mask, value, from, file, line);                        \
  }                                                                                                                 \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, ZINC_EMULATOR_SITE) {           \
    const unsigned first = zinc_emulator::segment(width, file, line);                                               \
    const unsigned lane = zinc_emulator::lane_index();                                                              \
    const unsigned from = lane + (delta & 31);                                                                      \
    return zinc_emulator::shuffle(zinc_emulator::shuffle_down, mask, value,                                         \
                                  from < first + static_cast<unsigned>(width) ? from : lane, file, line);           \
  }                                                                                                                 \
  inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, ZINC_EMULATOR_SITE) {             \
    const unsigned first = zinc_emulator::segment(width, file, line);                                               \
    const unsigned lane = zinc_emulator::lane_index();                                                              \
    const unsigned from = lane ^ (static_cast<unsigned>(lane_mask) & 31);                                           \
    return zinc_emulator::shuffle(zinc_emulator::shuffle_xor, mask, value,                                          \
                                  from < first + static_cast<unsigned>(width) ? from : lane, file, line);           \
  }

ZINC_EMULATOR_SHUFFLES(int)
ZINC_EMULATOR_SHUFFLES(unsigned)
ZINC_EMULATOR_SHUFFLES(long)
ZINC_EMULATOR_SHUFFLES(unsigned long)
ZINC_EMULATOR_SHUFFLES(long long)
ZINC_EMULATOR_SHUFFLES(unsigned long long)
ZINC_EMULATOR_SHUFFLES(float)
ZINC_EMULATOR_SHUFFLES(double)
#undef ZINC_EMULATOR_SHUFFLES

inline unsigned __ballot_sync(unsigned mask, int predicate, ZINC_EMULATOR_SITE) {
  return static_cast<unsigned>(zinc_emulator::vote(zinc_emulator::ballot, mask, predicate != 0, file, line));
}
inline int __any_sync(unsigned mask, int predicate, ZINC_EMULATOR_SITE) {
  return zinc_emulator::vote(zinc_emulator::vote_any, mask, predicate != 0, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, ZINC_EMULATOR_SITE) {
  return zinc_emulator::vote(zinc_emulator::vote_all, mask, predicate == 0, file, line) == 0;
}

#define ZINC_EMULATOR_MATCHES(T)                                                                                    \
  inline unsigned __match_any_sync(unsigned mask, T value, ZINC_EMULATOR_SITE) {                                    \
    uint64_t bits = 0;                                                                                              \
    memcpy(&bits, &value, sizeof value);                                                                            \
    return static_cast<unsigned>(zinc_emulator::vote(zinc_emulator::match_any, mask, bits, file, line));            \
  }                                                                                                                 \
  inline unsigned __match_all_sync(unsigned mask, T value, int* all, ZINC_EMULATOR_SITE) {                          \
    zinc_emulator::VoteArgs args = {0, 0, 0};                                                                       \
    memcpy(&args.value, &value, sizeof value);                                                                      \
    zinc_emulator::warp_collective(zinc_emulator::match_all, mask, args, file, line);                               \
    *all = args.all;                                                                                                \
    return static_cast<unsigned>(args.result);                                                                      \
  }

ZINC_EMULATOR_MATCHES(int)
ZINC_EMULATOR_MATCHES(unsigned)
ZINC_EMULATOR_MATCHES(long)
ZINC_EMULATOR_MATCHES(unsigned long)
ZINC_EMULATOR_MATCHES(long long)
ZINC_EMULATOR_MATCHES(unsigned long long)
ZINC_EMULATOR_MATCHES(float)
ZINC_EMULATOR_MATCHES(double)
#undef ZINC_EMULATOR_MATCHES

#define ZINC_EMULATOR_REDUCE(name, T, operation)                                                                    \
  inline T name(unsigned mask, T value, ZINC_EMULATOR_SITE) {                                                       \
    return static_cast<T>(static_cast<uint32_t>(                                                                    \
        zinc_emulator::vote(zinc_emulator::operation, mask, static_cast<uint32_t>(value), file, line)));            \
  }

ZINC_EMULATOR_REDUCE(__reduce_add_sync, unsigned, reduce_add)
ZINC_EMULATOR_REDUCE(__reduce_add_sync, int, reduce_add)
ZINC_EMULATOR_REDUCE(__reduce_min_sync, unsigned, reduce_min_u32)
ZINC_EMULATOR_REDUCE(__reduce_min_sync, int, reduce_min_s32)
ZINC_EMULATOR_REDUCE(__reduce_max_sync, unsigned, reduce_max_u32)
ZINC_EMULATOR_REDUCE(__reduce_max_sync, int, reduce_max_s32)
ZINC_EMULATOR_REDUCE(__reduce_and_sync, unsigned, reduce_and)
ZINC_EMULATOR_REDUCE(__reduce_or_sync, unsigned, reduce_or)
ZINC_EMULATOR_REDUCE(__reduce_xor_sync, unsigned, reduce_xor)
#undef ZINC_EMULATOR_REDUCE

unsigned __activemask() = delete;

#undef ZINC_EMULATOR_SITE
