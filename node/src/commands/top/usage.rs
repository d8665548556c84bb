//! The users of the brick: by operation, by file, by client. Files and clients come from the sample of whole requests: each stands
//! for as many of its operation as there were for each sampled one.

use super::super::callers::Callers;
use explain::Window;
use explain::snapshot::Whole;
use serde::Serialize;
use std::collections::BTreeMap;

/// A user of the brick.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Usage {
    /// The operation, the file or the client.
    pub name: String,
    /// Requests per second.
    pub per_second: f64,
    /// Part of all requests' time.
    pub share: f64,
    /// Their mean duration.
    pub mean_ns: u64,
    /// The stage in which they spent most time, and its part of it.
    pub mostly: Option<(String, f64)>,
}

/// Sums over requests.
#[derive(Default)]
struct Sum {
    requests: f64,
    ns: f64,
    stages: BTreeMap<String, f64>,
}

impl Sum {
    fn usage(self, name: String, window: &Window) -> Usage {
        let (requests, ns) = (self.requests.max(1e-9), self.ns.max(1e-9));
        let most = self.stages.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
        Usage {
            name,
            per_second: window.per_second(self.requests),
            share: self.ns / window.total_ns().max(1.0),
            mean_ns: (self.ns / requests) as u64,
            mostly: most.map(|(stage, stage_ns)| (stage, stage_ns / ns)),
        }
    }
}

/// Operations, exactly; those with most time first.
pub fn by_operation(window: &Window) -> Vec<Usage> {
    let usage = |operation: &explain::snapshot::Operation| {
        let stages = operation.stages.iter().map(|(stage, times)| (stage.clone(), times.sum_ns as f64)).collect();
        let sum = Sum { requests: operation.total.count as f64, ns: operation.total.sum_ns as f64, stages };
        sum.usage(operation.name.clone(), window)
    };
    in_order(window.operations.iter().map(usage).collect())
}

/// Files: paths where a caller has them open, else inode numbers.
pub fn by_file(window: &Window, callers: &mut Callers) -> Vec<Usage> {
    let mut paths: BTreeMap<u64, String> = BTreeMap::new();
    for Whole { ino, thread, .. } in &window.sample {
        if let Some(path) = (!paths.contains_key(ino)).then(|| callers.path(*thread, *ino)).flatten() {
            paths.insert(*ino, path);
        }
    }
    grouped(window, |whole| match (whole.ino, paths.get(&whole.ino)) {
        (0, _) => "(no file)".to_string(),
        (ino, None) => format!("inode {ino}"),
        (_, Some(path)) => path.clone(),
    })
}

/// Clients: command and process where they live, and the user.
pub fn by_client(window: &Window, callers: &mut Callers) -> Vec<Usage> {
    grouped(window, |whole| match (whole.thread, callers.process(whole.thread)) {
        (0, _) => "kernel (written back, read ahead)".to_string(),
        (thread, None) => format!("thread {thread} (ended), user {}", whole.uid),
        (_, Some(process)) => format!("{} ({}), user {}", process.command, process.pid, whole.uid),
    })
}

fn grouped(window: &Window, mut name: impl FnMut(&Whole) -> String) -> Vec<Usage> {
    let mut sampled: BTreeMap<&str, u64> = BTreeMap::new();
    for whole in &window.sample {
        *sampled.entry(&whole.name).or_default() += 1;
    }
    let counts = window.operations.iter().map(|operation| (&*operation.name, operation.total.count));
    let stands_for: BTreeMap<&str, f64> =
        counts.filter_map(|(name, count)| Some((name, count as f64 / *sampled.get(name)? as f64))).collect();
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for whole in &window.sample {
        let weight = stands_for.get(&*whole.name).copied().unwrap_or(0.0);
        let sum = sums.entry(name(whole)).or_default();
        sum.requests += weight;
        sum.ns += weight * whole.duration_ns as f64;
        for (stage, ns) in &whole.stages {
            *sum.stages.entry(stage.clone()).or_default() += weight * *ns as f64;
        }
    }
    in_order(sums.into_iter().map(|(name, sum)| sum.usage(name, window)).collect())
}

fn in_order(mut all: Vec<Usage>) -> Vec<Usage> {
    all.sort_by(|one, other| other.share.total_cmp(&one.share));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use explain::Times;
    use explain::snapshot::Operation;

    #[test]
    fn a_sampled_request_stands_for_those_of_its_operation() {
        let operation = |name: &str, count, sum_ns| Operation {
            name: name.into(),
            total: Times { count, sum_ns, ..Times::default() },
            ..Operation::default()
        };
        let whole = |name: &str, ino, duration_ns| Whole {
            name: name.into(),
            ino,
            duration_ns,
            stages: vec![("read".into(), duration_ns - 10), ("front".into(), 10)],
            ..Whole::default()
        };
        let window = Window {
            ns: 2_000_000_000,
            operations: vec![operation("read", 400, 400 * 100), operation("write", 10, 10 * 1000)],
            sample: vec![whole("read", 5, 100), whole("read", 5, 100), whole("read", 6, 100), whole("write", 6, 1000)],
            ..Window::default()
        };
        let mut nobody = Callers::new(Vec::new());
        let files = by_file(&window, &mut nobody);
        let told: Vec<_> = files.iter().map(|usage| (&*usage.name, usage.per_second.round(), usage.mean_ns)).collect();
        // Two thirds of 400 reads; a third of them and 10 writes.
        assert_eq!(told, [("inode 5", 133.0, 100), ("inode 6", 72.0, 162)]);
        assert!((files[0].share - 26_667.0 / 50_000.0).abs() < 0.01, "{files:?}");
        let (stage, share) = files[0].mostly.clone().expect("it has stages");
        assert!(stage == "read" && (share - 0.9).abs() < 1e-6, "{share}");
        let clients = by_client(&window, &mut nobody);
        assert_eq!(clients.iter().map(|usage| usage.share).sum::<f64>(), 1.0);
        assert_eq!((clients.len(), by_operation(&window)[0].per_second), (1, 200.0));
    }
}
