//! Plain f64 references of every kernel contract, test cases, fixtures and comparison.
