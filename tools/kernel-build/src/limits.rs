//! How many compilers may run at once on this machine.

use std::fs;

use crate::environment::Environment;

/// What one run of nvcc may take, bytes; the largest kernels stay below it.
const MEMORY_PER_JOB: u64 = 768 << 20;

/// The number of compilations to run at once: the cores, or cargo's `-j` in `NUM_JOBS` if that is fewer, as far as the free
/// memory goes.
pub fn jobs(environment: &Environment) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let asked = environment
        .text("NUM_JOBS")
        .and_then(|jobs| jobs.parse().ok())
        .unwrap_or(cores);
    let fitting = free_memory().map_or(cores, |bytes| (bytes / MEMORY_PER_JOB) as usize);
    cores.min(asked).min(fitting).max(1)
}

/// Bytes that can be used without swapping: what the kernel says, and what the control group leaves.
fn free_memory() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| available(&text));
    let group = |name: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let left = group("memory.max")
        .zip(group("memory.current"))
        .map(|(most, used)| most.saturating_sub(used));
    [system, left].into_iter().flatten().min()
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_kibibytes() {
        assert_eq!(
            available("MemTotal:       24 kB\nMemAvailable:   12 kB\n"),
            Some(12 << 10)
        );
        assert_eq!(available("MemTotal:       24 kB\n"), None);
    }

    #[test]
    fn jobs_are_at_least_one_and_never_above_what_cargo_allows() {
        let with = |jobs: &str| super::jobs(&Environment::of(&[("NUM_JOBS", jobs.as_ref())]));
        assert_eq!(with("1"), 1);
        assert_eq!(with("0"), 1);
        assert!(with("many") >= 1);
    }
}
