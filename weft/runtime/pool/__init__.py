"""The thread pool, as LLVM IR."""
