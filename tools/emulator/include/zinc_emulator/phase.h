// Phase barriers: counters in shared memory whose threads wait for the end of a phase, in no order with other barriers.
#pragma once

namespace zinc_emulator {

// The 8 bytes of a barrier. src/worker.rs reads them too.
struct Phase {
  uint16_t missing;   // arrivals until the phase ends
  uint16_t arrivals;  // of a phase
  uint16_t parity;    // of the phase that has not ended
  uint16_t made;      // phase_made: memory that nobody made a barrier in has something else here, as a rule
};
static_assert(sizeof(Phase) == 8, "the size that it has in shared memory");
constexpr uint16_t phase_made = 0xba55;

inline Phase& phase_at(uint64_t* state, const char* file, unsigned line) {
  Phase& phase = *reinterpret_cast<Phase*>(state);
  if (phase.made != phase_made) fail("a phase barrier that has not been made", file, line);
  return phase;
}

inline void phase_make(uint64_t* state, uint32_t arrivals, const char* file, unsigned line) {
  if (arrivals == 0 || arrivals > UINT16_MAX) fail("a phase has 1 to 65535 arrivals", file, line);
  const uint16_t count = static_cast<uint16_t>(arrivals);
  *reinterpret_cast<Phase*>(state) = {count, count, 0, phase_made};
}

inline void phase_arrive(uint64_t* state, const char* file, unsigned line) {
  Phase& phase = phase_at(state, file, line);
  phase.missing -= 1;
  if (phase.missing != 0) return;
  phase.missing = phase.arrivals;
  phase.parity ^= 1;
}

inline void phase_wait(uint64_t* state, uint32_t parity, const char* file, unsigned line) {
  if (parity > 1) fail("a phase has the parity 0 or 1", file, line);
  if (phase_at(state, file, line).parity != parity) return;
  Thread* const thread = zinc_emulator_current;
  thread->args = state;
  thread->value = parity;
  suspend(Wait::phase, "phase_wait", file, line);
}

}  // namespace zinc_emulator
