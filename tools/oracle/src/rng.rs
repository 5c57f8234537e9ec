//! The random numbers of cases: small, seeded, the same on every machine and in every version.

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for a seed; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator seeded by texts, for example kernel name and case label.
    pub fn from_names(names: &[&str]) -> Self {
        // FNV-1a, with a separator after each name.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for name in names {
            for byte in name.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        Self(hash)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (0 for a bound of 0).
    pub fn below(&mut self, bound: u32) -> u32 {
        let wide = (self.next_u64() >> 32) * u64::from(bound);
        (wide >> 32) as u32
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// True or false with equal chance.
    pub fn flip(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in [-limit, limit).
    pub fn uniform(&mut self, limit: f32) -> f32 {
        ((self.unit() * 2.0 - 1.0) * f64::from(limit)) as f32
    }

    /// Bell-shaped around 0 with standard deviation 1, never beyond 3.5.
    pub fn normal(&mut self) -> f32 {
        let sum: f64 = (0..4).map(|_| self.unit()).sum();
        ((sum - 2.0) * 3.0_f64.sqrt()) as f32
    }

    /// `count` values of [`Rng::normal`], scaled.
    pub fn normals(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| self.normal() * scale).collect()
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(len + 7);
        while bytes.len() < len {
            bytes.extend(self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// A permutation of `0..count`.
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.below(i as u32 + 1) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_give_equal_sequences_and_others_differ() {
        let first = Rng::from_names(&["vadd", "a"]).next_u64();
        assert_eq!(first, Rng::from_names(&["vadd", "a"]).next_u64());
        assert_ne!(first, Rng::from_names(&["vad", "da"]).next_u64());
    }

    #[test]
    fn ranges_are_respected_and_reached() {
        let mut rng = Rng::new(1);
        let drawn: Vec<u32> = (0..1000).map(|_| rng.between(3, 5)).collect();
        assert!((3..=5).all(|v| drawn.contains(&v)));
        assert!(drawn.iter().all(|v| (3..=5).contains(v)));
        assert!((0..1000).all(|_| rng.normal().abs() < 3.5));
    }
}
