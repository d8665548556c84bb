//! A database's client that is told, one by one, which of its transactions are committed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No transaction takes longer, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// The client, its transactions numbered from 1.
pub struct Told {
    child: Child,
    last: Arc<AtomicU64>,
    feeds: JoinHandle<()>,
    reads: JoinHandle<()>,
}

impl Told {
    /// Starts a program that takes statements: first `setup`, then `insert` for each number, one after the other. It answers
    /// each with a line of `mark` and the number.
    pub fn start(
        mut command: Command,
        setup: &str,
        insert: impl Fn(u64) -> String + Send + 'static,
        mark: &'static str,
    ) -> Told {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program is installed");
        let mut input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        input.write_all(setup.as_bytes()).expect("it reads");
        let feeds = std::thread::spawn(move || {
            // Ends when the program does.
            for number in 1.. {
                if input.write_all(insert(number).as_bytes()).is_err() {
                    return;
                }
            }
        });
        let last = Arc::new(AtomicU64::new(0));
        let heard = last.clone();
        let reads = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some(number) = line.strip_prefix(mark).and_then(|number| number.parse().ok()) else { continue };
                assert_eq!(heard.swap(number, Ordering::Relaxed) + 1, number, "in their order");
            }
        });
        Told { child, last, feeds, reads }
    }
    /// Waits until so many transactions are committed, as long as there are more and more.
    pub fn wait_for(&self, number: u64) {
        let (mut last, mut since) = (0, Instant::now());
        while last < number {
            assert!(since.elapsed() < PATIENCE, "{last} of {number} transactions");
            std::thread::sleep(Duration::from_millis(5));
            let now = self.last.load(Ordering::Relaxed);
            if now > last {
                (last, since) = (now, Instant::now());
            }
        }
    }
    /// Ends the program, and tells the last transaction that it has said is committed.
    pub fn end(mut self) -> u64 {
        drop(self.child.kill());
        self.child.wait().expect("it can be waited for");
        self.feeds.join().expect("no panic");
        self.reads.join().expect("no panic");
        self.last.load(Ordering::Relaxed)
    }
}
