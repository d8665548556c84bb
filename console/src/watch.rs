//! The last ten minutes of a daemon, for those who watch it. Promises that the daemon is looked at only while somebody has
//! asked within the last minute, and that what is kept is bounded, however long that goes on.

use crate::Source;
use crate::last::last;
use crate::point::point;
use explain::snapshot::Whole;
use explain::{Snapshot, Window, explain};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Interval between two points.
const TICK: Duration = Duration::from_secs(1);
/// The part of it for which requests in flight are looked at: the rest is for everything else.
const LOOKING: Duration = Duration::from_millis(900);
/// Points that are kept: ten minutes, about as much as a person compares by eye.
const POINTS_MAX: usize = 600;
/// Seconds that the verdict and the tables are about.
const RECENT: usize = 10;
/// Whole requests of a second that are kept: a hundredth of ten seconds' are still 50, for the waterfall's 99th percentile.
const SAMPLE_MAX: usize = 500;
/// Ticks between two looks at all segments, of which a large brick has a million.
const LIVENESS_EVERY: u64 = 10;
/// Time for which a daemon is looked at after somebody asked last.
const PATIENCE: Duration = Duration::from_secs(60);

/// The figures of those who watch.
#[derive(Default)]
pub struct Watch {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    /// The time at which somebody asked last.
    asked: Option<Instant>,
    is_over: bool,
    history: History,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    /// The points after `after`, in seconds since the daemon's start, and the last seconds; as JSON. Somebody watches.
    pub fn view(&self, after: f64, source: &dyn Source) -> String {
        let mut state = self.state();
        let is_first = state.asked.replace(Instant::now()).is_none();
        if is_first {
            self.bell.notify_all();
        }
        state.history.view(after, &source.version(), &source.brick())
    }
    /// Ends `run`.
    pub fn stop(&self) {
        self.state().is_over = true;
        self.bell.notify_all();
    }
    /// Looks once a second while somebody watches, until `stop`.
    pub fn run(&self, source: &dyn Source) {
        let (mut liveness, mut ticks) = (Vec::new(), 0u64);
        loop {
            let mut state = self.state();
            if state.asked.is_some_and(|asked| asked.elapsed() > PATIENCE) {
                state.asked = None;
                state.history.pause();
            }
            while state.asked.is_none() && !state.is_over {
                state = self.bell.wait(state).expect("no panic while held");
            }
            if state.is_over {
                return;
            }
            let looking = if state.history.recent.is_empty() { Duration::ZERO } else { LOOKING };
            drop(state);
            let began = Instant::now();
            if ticks.is_multiple_of(LIVENESS_EVERY) {
                liveness = source.liveness();
            }
            ticks += 1;
            let (snapshot, slowest) = (source.snapshot(looking), source.slowest());
            // The first of them begins a second.
            let begins = looking.is_zero() && snapshot.is_some();
            let mut state = self.state();
            if let Some(snapshot) = snapshot {
                state.history.add(snapshot, slowest, liveness.clone());
            }
            let left = if begins { Duration::ZERO } else { TICK.saturating_sub(began.elapsed()) };
            drop(self.bell.wait_timeout_while(state, left, |state| !state.is_over).expect("no panic while held"));
        }
    }
}

/// The last minutes, as JSON that is sent as it is.
#[derive(Default)]
struct History {
    /// Points: the time of each, and its JSON.
    points: VecDeque<(f64, String)>,
    /// The last snapshots, oldest first.
    recent: VecDeque<Snapshot>,
    /// The last seconds.
    last: Option<String>,
    /// The time at which the daemon started, on its clock: who has points of another one forgets them.
    started_ns: u64,
}

impl History {
    /// Forgets the last seconds: what comes next has nothing to do with them.
    fn pause(&mut self) {
        self.recent.clear();
        self.last = None;
    }
    fn add(&mut self, mut snapshot: Snapshot, slowest: Vec<Whole>, liveness: Vec<u64>) {
        let step = snapshot.sample.len().div_ceil(SAMPLE_MAX).max(1);
        snapshot.sample = snapshot.sample.into_iter().step_by(step).collect();
        if let Some(window) = self.recent.back().and_then(|before| Window::between(before, &snapshot)) {
            let point = point(&window);
            self.points.push_back((point.at, json(&point)));
        }
        while self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
        self.started_ns = snapshot.started_ns;
        self.recent.push_back(snapshot);
        while self.recent.len() > RECENT + 1 {
            self.recent.pop_front();
        }
        self.last = self.told(slowest, liveness);
    }
    fn told(&self, slowest: Vec<Whole>, liveness: Vec<u64>) -> Option<String> {
        let (before, after) = (self.recent.front()?, Snapshot::end_of(self.recent.iter())?);
        let (window, explanation) = (Window::between(before, &after)?, explain(before, &after)?);
        Some(json(&last(&window, explanation, slowest, liveness)))
    }
    fn view(&self, after: f64, version: &str, brick: &str) -> String {
        let points = self.points.iter().filter(|(at, _)| *at > after).map(|(_, json)| &**json);
        format!(
            "{{\"version\":{},\"brick\":{},\"started\":{},\"points\":[{}],\"last\":{}}}",
            json(&version),
            json(&brick),
            self.started_ns,
            points.collect::<Vec<_>>().join(","),
            self.last.as_deref().unwrap_or("null")
        )
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("figures are plain data, which is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use explain::Times;
    use explain::snapshot::{InFlight, Operation};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A daemon that has answered 100 reads in each second, whenever it is asked.
    #[derive(Default)]
    struct Steady {
        looks: AtomicU64,
    }

    fn at(second: u64) -> Snapshot {
        let total = Times {
            count: 100 * second,
            sum_ns: second,
            max_ns: 9,
            unit_ns: 1.0,
            buckets: [(20, 100 * second)].into(),
        };
        let read = Whole { name: "read".into(), end_ns: second * 1_000_000_000, duration_ns: 9, ..Whole::default() };
        Snapshot {
            at_ns: 1_000_000_000 * second,
            operations: vec![Operation { name: "read".into(), total, ..Operation::default() }],
            sample: vec![read; 2 * SAMPLE_MAX + 1],
            in_flight: InFlight { looks: 90, in_daemon: 9, ..InFlight::default() },
            ..Snapshot::default()
        }
    }

    impl Source for Steady {
        fn snapshot(&self, _looking: Duration) -> Option<Snapshot> {
            Some(at(self.looks.fetch_add(1, Ordering::Relaxed)))
        }
        fn slowest(&self) -> Vec<Whole> {
            Vec::new()
        }
        fn liveness(&self) -> Vec<u64> {
            vec![1; 10]
        }
        fn version(&self) -> String {
            "1".to_string()
        }
        fn brick(&self) -> String {
            "/srv/\"brick\"".to_string()
        }
    }

    fn view(history: &History, after: f64) -> serde_json::Value {
        serde_json::from_str(&history.view(after, "1", "/srv/\"brick\"")).expect("JSON")
    }

    #[test]
    fn ten_minutes_are_kept_and_ten_seconds_told() {
        let mut history = History::default();
        assert_eq!(view(&history, 0.0)["points"], serde_json::json!([]));
        for second in 0..700 {
            history.add(at(second), Vec::new(), vec![3]);
        }
        let told = view(&history, 0.0);
        let points = told["points"].as_array().expect("a list");
        assert_eq!((points.len(), &points[0]["at"], &points[599]["at"]), (600, &100.0.into(), &699.0.into()));
        assert_eq!(points[7]["operations"]["read"]["rate"], 100.0);
        assert_eq!((&told["brick"], &told["last"]["liveness"][0]), (&"/srv/\"brick\"".into(), &3.into()));
        let explanation = &told["last"]["explanation"];
        assert_eq!((&explanation["seconds"], &explanation["operations"][0]["count"]), (&10.0.into(), &1000.into()));
        // The samples of all ten seconds, each thinned to less than its most.
        let band = &explanation["operations"][0]["waterfall"][0];
        assert_eq!(band["requests"], 10 * (2 * SAMPLE_MAX + 1).div_ceil(3));
        assert_eq!(view(&history, 697.5)["points"].as_array().map(Vec::len), Some(2));
        assert_eq!(history.recent.len(), RECENT + 1);
    }

    #[test]
    fn after_a_pause_nothing_is_told_of_the_time_between() {
        let mut history = History::default();
        (0..5).for_each(|second| history.add(at(second), Vec::new(), Vec::new()));
        history.pause();
        assert!(view(&history, 0.0)["last"].is_null());
        history.add(at(100), Vec::new(), Vec::new());
        assert!(view(&history, 0.0)["last"].is_null(), "one snapshot is no window");
        history.add(at(101), Vec::new(), Vec::new());
        let told = view(&history, 0.0);
        let times: Vec<f64> =
            told["points"].as_array().expect("a list").iter().filter_map(|point| point["at"].as_f64()).collect();
        assert_eq!(times, [1.0, 2.0, 3.0, 4.0, 101.0]);
        assert_eq!(told["last"]["explanation"]["seconds"], 1.0);
    }

    #[test]
    fn nobody_looks_unless_somebody_watches() {
        let (watch, source) = (Watch::default(), Steady::default());
        std::thread::scope(|scope| {
            let running = scope.spawn(|| watch.run(&source));
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(source.looks.load(Ordering::Relaxed), 0);
            let deadline = Instant::now() + Duration::from_secs(20);
            while !watch.view(0.0, &source).contains("\"at\":") {
                assert!(Instant::now() < deadline, "a point within seconds");
                std::thread::sleep(Duration::from_millis(10));
            }
            watch.stop();
            running.join().expect("it ends");
        });
    }
}
