//! Scheduling priorities of threads that want the same CPU.

use rustix::process::setpriority_process;

/// The longest time slice that Linux accepts for a thread.
const TURN_NS: u64 = 100_000_000;

/// The nice value of a core's thread: ten times the weight of others that want its CPU, the usual step for services.
/// With equal weight it waited 1.4 ms behind a compaction whenever it had just used its share.
const CORE_NICE: i32 = -10;

/// Raises the priority of the calling thread, and of those that it starts from now on, over others on its CPU: for a core's thread, since clients
/// wait for it and their requests bound its work, and for one that tells an operator what takes the CPUs. Without the capability
/// for it (CAP_SYS_NICE), its weight stays that of others.
pub fn set_core_priority() {
    // On Linux this is about one thread.
    let _ = setpriority_process(None, CORE_NICE);
}

/// Lets other threads run before the calling thread and the threads that it starts from now on: for work that no client
/// waits for. It keeps its full share of a busy CPU, in few and long time slices. Linux's scheduler (EEVDF, 6.12 and
/// later) interrupts a long slice for a thread that wakes with a usual one; a thread with a slice like its own would
/// wait for the slice's end, 3 to 4 ms with a timer of 250 Hz.
pub fn set_batch_policy() {
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

/// The nice value of threads whose work may wait for everybody else's.
const LAST_NICE: i32 = 19;

/// Gives the calling thread and the threads that it starts from now on the least share of a busy CPU: for figures that
/// somebody looks at beside the work.
pub fn set_least_priority() {
    // Everybody may lower a priority. If it is refused all the same, the thread has what others have.
    let _ = setpriority_process(None, LAST_NICE);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scheduling policy of the calling thread, and the length of its time slices.
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
    fn the_least_priority_is_inherited() {
        let nice = || rustix::process::getpriority_process(None).expect("a thread has a priority");
        let last = std::thread::scope(|scope| {
            let last = scope.spawn(|| {
                set_least_priority();
                (nice(), std::thread::spawn(nice).join().expect("no panic"))
            });
            last.join().expect("no panic")
        });
        assert_eq!(last, (LAST_NICE, LAST_NICE));
        assert!(nice() < LAST_NICE);
    }

    #[test]
    fn a_thread_that_gives_way_and_those_that_it_starts_have_long_turns() {
        let (usual, long, inherited) = std::thread::scope(|scope| {
            let usual = turns();
            let giving = scope.spawn(|| {
                set_batch_policy();
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
