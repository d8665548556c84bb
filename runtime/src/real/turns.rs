//! Whose turn it is on a CPU that several threads want.

/// The longest turn that Linux takes from a thread.
const TURN_NS: u64 = 100_000_000;

/// How much a core's thread counts against others that want its CPU: ten times as much, the usual step for services.
/// With the same weight, it waited behind a compaction for 1.4 ms whenever it had just used its share.
const CORE_NICE: i32 = -10;

/// Has the calling thread, a core's, run before others on its CPU: clients wait for it, and what it does is bounded by what
/// they ask for. Without the capability for it (CAP_SYS_NICE), it counts like others.
pub(super) fn come_first() {
    // SAFETY: the call only takes numbers. On Linux it is about one thread.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, CORE_NICE) };
}

/// Lets whoever else has something to do run before the calling thread, and before the threads that it starts from now
/// on: for work that no client waits for. It has its full share of a busy CPU, in few and long turns. Linux's scheduler
/// (EEVDF, 6.12 and later) interrupts a long turn for a thread that wakes with a usual one; it would have it wait for the
/// end of a turn like its own, 3 to 4 ms with a timer of 250 Hz.
pub fn give_way() {
    let attributes = libc::sched_attr {
        size: std::mem::size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_BATCH as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: TURN_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the pointer is to attributes of ours, whose size they tell. If they are refused, clients only wait longer.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scheduling policy of the calling thread, and the length of its turns.
    fn turns() -> (u32, u64) {
        // SAFETY: all zeros are valid attributes.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = std::mem::size_of::<libc::sched_attr>() as u32;
        // SAFETY: the pointer is to attributes of ours of this size.
        let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        assert!(failed == 0, "{}", std::io::Error::last_os_error());
        (attributes.sched_policy, attributes.sched_runtime)
    }

    #[test]
    fn a_thread_that_gives_way_and_those_that_it_starts_have_long_turns() {
        let (usual, long, inherited) = std::thread::scope(|scope| {
            let usual = turns();
            let giving = scope.spawn(|| {
                give_way();
                (turns(), std::thread::spawn(turns).join().expect("no panic"))
            });
            let (long, inherited) = giving.join().expect("no panic");
            (usual, long, inherited)
        });
        assert_eq!(long.0, libc::SCHED_BATCH as u32);
        assert_eq!(long, inherited);
        assert!(usual.0 == libc::SCHED_OTHER as u32 && usual.1 < TURN_NS, "{usual:?}");
        // Linux before 6.12 has one length of turns for all.
        assert!(long.1 == TURN_NS || long.1 == usual.1, "{long:?}");
    }
}
