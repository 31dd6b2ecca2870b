//! Work whose duration grows with the size of its input.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Inputs above this size are processed outside the threads that serve sockets.
const LARGE_INPUT_BYTES: usize = 256 << 10;

/// Returns true if work on an input of this size leaves the threads that serve sockets.
pub const fn is_large(input_bytes: usize) -> bool {
    input_bytes > LARGE_INPUT_BYTES
}

/// Runs work on an input of this size where nothing can wait: within a stream, under a lock, for the
/// store. For copies and short scans only; `HeavyWork` limits all else.
pub fn run_in_place<T>(input_bytes: usize, work: impl FnOnce() -> T) -> T {
    // A single-threaded runtime, as in tests, has no other thread.
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread if is_large(input_bytes) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
