//! Reads and validates the kernel catalog and generates code from it.
