//! Reads GGUF model files without copying them.
