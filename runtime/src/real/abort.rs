//! The end of a process in which a thread of a core or of a pool panicked.

/// Ends the process if a core panics. A panic means a broken invariant while I/O is in flight, so the buffers must not
/// be freed.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
