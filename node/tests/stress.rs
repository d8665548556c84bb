//! stress-ng's file system stressors on a real mount, each for `SINTER_STRESS` seconds (1 if not set; 100 take about an
//! hour). They verify what they read back; afterwards the brick's check finds nothing.

mod daemon;
#[path = "daemon/stress.rs"]
mod stress;

use daemon::Home;

fn seconds() -> u64 {
    daemon::setting("SINTER_STRESS", 1)
}

#[test]
fn stressors_find_nothing() {
    let home = Home::new("stress");
    let daemon = home.up();
    let mut failed = Vec::new();
    for stressor in stress::STRESSORS {
        failed.extend(stress::run(stressor, 2, seconds(), &home.mount).err());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let left = std::fs::read_dir(&home.mount).expect("readable").count();
    assert_eq!(left, 0, "each cleans up behind itself");
    daemon.terminate();
    home.check();
}
