//! The end of a process in which a thread of a core or of a pool panicked.

/// Ends the process if a core panics. A panic breaks an invariant while I/O is in flight, and the buffers must not be
/// freed.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
