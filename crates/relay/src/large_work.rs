//! Work whose duration grows with the size of its input.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Inputs above this size are processed outside the threads that serve sockets.
const LARGE_INPUT_BYTES: usize = 256 << 10;

/// Runs work on an input of this size. For a large input it can take seconds, so other tasks of
/// this thread move to another one.
pub fn run_sized<T>(input_bytes: usize, work: impl FnOnce() -> T) -> T {
    // A single-threaded runtime, as in tests, has no other thread.
    let many = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if input_bytes > LARGE_INPUT_BYTES && many() {
        return tokio::task::block_in_place(work);
    }
    work()
}
