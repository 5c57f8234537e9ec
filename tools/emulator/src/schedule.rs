//! The orders in which blocks, warps and lanes run.

use crate::abi::WARP;

/// The order in which the threads of a block, and the blocks of a grid, are resumed. A correct kernel gives the same
/// bits under every order; one with a race usually does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Ascending.
    #[default]
    Forward,
    /// Descending.
    Reverse,
    /// A permutation that depends on the seed, another one after every barrier and every round of ended phases.
    Seeded(u64),
}

/// A small generator of numbers that only have to look random (splitmix64).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The order of warps in a block and of lanes in a warp.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) warps: Vec<u32>,
    pub(crate) lanes: [u8; WARP],
    random: Option<Random>,
}

impl Order {
    pub(crate) fn new() -> Order {
        Order {
            warps: Vec::new(),
            lanes: [0; WARP],
            random: None,
        }
    }

    /// Starts a block of `warps` warps; `block` is its linear index in the grid.
    pub(crate) fn start(&mut self, schedule: Schedule, warps: usize, block: u64) {
        self.random = None;
        self.warps.clear();
        self.warps.extend(0..warps as u32);
        for (lane, place) in (0u8..).zip(&mut self.lanes) {
            *place = lane;
        }
        match schedule {
            Schedule::Forward => {}
            Schedule::Reverse => {
                self.warps.reverse();
                self.lanes.reverse();
            }
            Schedule::Seeded(seed) => {
                self.random = Some(Random::new(
                    seed ^ block.wrapping_mul(0xd134_2543_de82_ef95),
                ));
                self.advance();
            }
        }
    }

    /// Takes the next order.
    pub(crate) fn advance(&mut self) {
        if let Some(random) = &mut self.random {
            random.shuffle(&mut self.warps);
            random.shuffle(&mut self.lanes);
        }
    }
}

/// The order of the blocks of a grid: place `i` of `count` holds block (`step` * i + `first`) mod `count`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockOrder {
    count: u64,
    step: u64,
    first: u64,
}

impl BlockOrder {
    pub(crate) fn new(schedule: Schedule, count: u64) -> BlockOrder {
        let (step, first) = match schedule {
            Schedule::Forward => (1, 0),
            Schedule::Reverse => (count - 1, count - 1),
            Schedule::Seeded(seed) => {
                let mut random = Random::new(seed);
                let first = random.next() % count;
                // A step that shares no factor with the count visits every block once.
                let mut step = random.next() % count;
                while gcd(step, count) != 1 {
                    step = (step + 1) % count;
                }
                (step, first)
            }
        };
        BlockOrder { count, step, first }
    }

    pub(crate) fn block(self, place: u64) -> u64 {
        let wide = u128::from(self.step) * u128::from(place) + u128::from(self.first);
        (wide % u128::from(self.count)) as u64
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schedule_visits_every_block_once() {
        for count in [1u64, 2, 3, 12, 97, 1000] {
            for schedule in [Schedule::Forward, Schedule::Reverse, Schedule::Seeded(5)] {
                let order = BlockOrder::new(schedule, count);
                let mut seen: Vec<u64> = (0..count).map(|place| order.block(place)).collect();
                if schedule == Schedule::Reverse {
                    assert!(seen.is_sorted_by(|a, b| a > b));
                }
                seen.sort_unstable();
                assert_eq!(
                    seen,
                    (0..count).collect::<Vec<_>>(),
                    "{schedule:?} of {count}"
                );
            }
        }
    }

    #[test]
    fn seeded_order_is_a_permutation_that_repeats_with_its_seed() {
        let mut a = Order::new();
        let mut b = Order::new();
        a.start(Schedule::Seeded(7), 8, 3);
        b.start(Schedule::Seeded(7), 8, 3);
        assert_eq!((&a.warps, a.lanes), (&b.warps, b.lanes));
        let before = a.lanes;
        a.advance();
        assert_ne!(before, a.lanes);
        let mut lanes = a.lanes;
        lanes.sort_unstable();
        assert!(lanes.iter().enumerate().all(|(i, &lane)| i == lane.into()));
    }
}
