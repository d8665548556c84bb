//! `sinter bench streams`: thousands of readers, each of a constant bit rate and with a position and a file of its own, then
//! the same beside one reader at full speed (mission S5).
//!
//! A stream asks for its next chunk when the one before begins to play, so the chunk must be there one chunk's playing time later;
//! if not, it is missed. The schedule doesn't wait for who is late. Streams start spread over a time of their own, since a disk can't
//! find the first chunk of hundreds within one chunk's time. A few threads serve all: each takes the stream whose next chunk is due
//! first, waits until then, reads, and puts it back.

use super::engine::{Course, Ground, LAYOUT_BYTES, Step, Worker, random_bytes, run, run_groups};
use super::report::{Form, Row};
use super::turns::Bench;
use runtime::random::SplitMix;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that a stream reads at once: about a second of film.
pub const CHUNK_BYTES: u64 = 128 << 10;
/// Threads that serve streams: as many requests are in flight at most.
const THREADS: u32 = 32;
/// Longest wait of a thread before it checks whether the bench is over.
const WAIT: Duration = Duration::from_millis(10);
/// Name of the file that the reader at full speed reads.
const READER: &str = "reader";

/// The plan of the measurement.
pub struct Plan {
    /// Streams.
    pub streams: u32,
    /// Bits per second of each.
    pub bit_rate: u64,
    /// Bytes of each stream's file.
    pub file_bytes: u64,
    /// Bytes of the file that is read at full speed, once.
    pub reader_bytes: u64,
    /// Time for the streams alone, and again with the reader.
    pub time: Duration,
    /// Time over which the streams start, one after the other; none: the time that a chunk plays.
    pub start_over: Option<Duration>,
}

impl Plan {
    /// The time that a chunk plays.
    fn period(&self) -> Duration {
        Duration::from_nanos((CHUNK_BYTES * 8 * 1_000_000_000).div_ceil(self.bit_rate))
    }
    /// The time at which a stream's first chunk is asked for.
    fn begins(&self, stream: usize) -> Duration {
        self.start_over.unwrap_or(self.period()).mul_f64(stream as f64 / f64::from(self.streams))
    }
    fn open(&self, ground: &Ground) -> Result<Vec<File>> {
        (0..self.streams).map(|stream| File::open(ground.path(&stream_name(stream)))).collect()
    }
    /// The row of streams that were measured until now.
    fn row(&self, mode: &str, queue: &Queue, measured: &super::engine::Measured) -> Row {
        let missed = queue.missed(measured.elapsed);
        Row { missed: Some(missed), ..Row::of(mode, self.streams, CHUNK_BYTES, measured) }
    }
}

/// Its one cell has the streams alone, then beside the reader.
impl Bench for Plan {
    fn form(&self) -> Form {
        Form {
            bench: "streams",
            file_bytes: Some(self.file_bytes),
            direct: false,
            seconds: Some(self.time.as_secs()),
            threads: "readers",
            rate: "chunks/s",
            ..Form::default()
        }
    }
    fn prepare(&self, ground: &Ground, course: &mut Course) -> Result<()> {
        runtime::real::raise_open_files();
        course.begin(&format!("laying out {} files of {} bytes", self.streams, self.file_bytes));
        for stream in 0..self.streams {
            ground.lay_out(&stream_name(stream), self.file_bytes, u64::from(stream), course)?;
        }
        ground.lay_out(READER, self.reader_bytes, u64::MAX, course)
    }
    fn cells(&self) -> usize {
        1
    }
    fn measure(&self, _cell: usize, ground: &Ground, course: &mut Course) -> Result<Vec<Row>> {
        course.forget_files();
        course.begin(&format!("{} streams of {} bits per second", self.streams, self.bit_rate));
        let queue = Queue::new(self, self.open(ground)?);
        let measured = run(queue.workers()?, self.time, course)?;
        let alone = self.row("streams", &queue, &measured);
        if course.is_interrupted() {
            return Ok(vec![alone]);
        }
        course.forget_files();
        course.begin(&format!("{} streams beside a reader at full speed", self.streams));
        let (reader, queue) = (reader(ground)?, Queue::new(self, self.open(ground)?));
        let measured = run_groups(vec![queue.workers()?, vec![reader]], self.time, course, |_| {})?;
        let beside = self.row("streams beside", &queue, &measured[0]);
        Ok(vec![alone, beside, Row::of("reader", 1, LAYOUT_BYTES as u64, &measured[1])])
    }
}

fn stream_name(stream: u32) -> String {
    format!("stream-{stream}")
}

/// Reads its file through the page cache from start to end, once: what is read again would come from memory.
fn reader(ground: &Ground) -> Result<Worker> {
    let file = File::open(ground.path(READER))?;
    let (mut buffer, mut offset) = (random_bytes(LAYOUT_BYTES, 0)?, 0);
    Ok(Box::new(move || {
        let read = file.read_at(&mut buffer, offset)? as u64;
        offset += read;
        Ok(if read == 0 { Step::End } else { Step::Done(read) })
    }))
}

/// The streams, and which of them is due when.
struct Queue {
    files: Vec<File>,
    /// Chunks of each file.
    chunks: u64,
    period: Duration,
    /// Times after the start at which the streams' first chunks are asked for.
    begins: Vec<Duration>,
    /// Time at which the first worker began: making all of them takes time.
    start: OnceLock<Instant>,
    state: Mutex<State>,
}

struct State {
    /// Times after the start at which the streams' next chunks are due, except for streams that a thread has.
    due: BinaryHeap<Reverse<(Duration, usize)>>,
    /// Number of chunks read, by stream.
    read: Vec<u64>,
    /// Number of chunks that came too late.
    late: u64,
}

impl Queue {
    fn new(plan: &Plan, files: Vec<File>) -> Arc<Queue> {
        let period = plan.period();
        let begins: Vec<_> = (0..files.len()).map(|stream| plan.begins(stream)).collect();
        let due = begins.iter().zip(0..).map(|(begins, stream)| Reverse((*begins, stream))).collect();
        let state = Mutex::new(State { due, read: vec![0; files.len()], late: 0 });
        let chunks = (plan.file_bytes / CHUNK_BYTES).max(1);
        Arc::new(Queue { chunks, files, period, begins, start: OnceLock::new(), state })
    }
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn workers(self: &Arc<Queue>) -> Result<Vec<Worker>> {
        (0..THREADS).map(|_| self.worker()).collect()
    }
    fn worker(self: &Arc<Queue>) -> Result<Worker> {
        let (queue, mut taken) = (self.clone(), None);
        let mut buffer = random_bytes(CHUNK_BYTES as usize, 0)?;
        Ok(Box::new(move || {
            let next = taken.take().or_else(|| queue.state().due.pop());
            let Some(Reverse((due, stream))) = next else {
                std::thread::sleep(WAIT);
                return Ok(Step::Idle);
            };
            let wait = due.saturating_sub(queue.start.get_or_init(Instant::now).elapsed());
            std::thread::sleep(wait.min(WAIT));
            if wait > WAIT {
                taken = next;
                return Ok(Step::Idle);
            }
            queue.play(stream, due, &mut buffer)
        }))
    }
    /// Reads a stream's next chunk.
    fn play(&self, stream: usize, due: Duration, buffer: &mut [u8]) -> Result<Step> {
        // Each begins somewhere else.
        let number = (SplitMix(stream as u64).next() + self.state().read[stream]) % self.chunks;
        let read = self.files[stream].read_at(buffer, number * CHUNK_BYTES)?;
        let since = *self.start.get_or_init(Instant::now) + due;
        let mut state = self.state();
        state.late += u64::from(since.elapsed() > self.period);
        state.read[stream] += 1;
        state.due.push(Reverse((due + self.period, stream)));
        Ok(Step::DoneSince(read as u64, since))
    }
    /// Chunks that weren't there when they had to be, also those that nobody had come to by the end.
    fn missed(&self, elapsed: Duration) -> u64 {
        let state = self.state();
        let unread = |stream: usize| {
            let needed = elapsed.saturating_sub(self.begins[stream]).as_nanos() / self.period.as_nanos();
            (needed as u64).saturating_sub(state.read[stream])
        };
        state.late + (0..self.files.len()).map(unread).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_chunk_that_comes_late_is_missed_as_is_one_that_never_comes() {
        let scratch = Scratch::new();
        let path = scratch.path().join("stream");
        std::fs::write(&path, vec![0; CHUNK_BYTES as usize]).expect("ours");
        let files = (0..2).map(|_| File::open(&path).expect("ours")).collect();
        // A chunk plays for a second.
        let time = Duration::from_secs(1);
        let plan = Plan {
            streams: 2,
            bit_rate: CHUNK_BYTES * 8,
            file_bytes: CHUNK_BYTES,
            reader_bytes: 0,
            time,
            start_over: None,
        };
        let queue = Queue::new(&plan, files);
        let ago = Instant::now().checked_sub(Duration::from_millis(2500)).expect("the machine is up longer");
        queue.start.set(ago).expect("nobody began");
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        queue.play(0, Duration::ZERO, &mut buffer).expect("it can be read");
        queue.play(0, Duration::from_secs(1), &mut buffer).expect("it can be read");
        queue.play(0, Duration::from_secs(2), &mut buffer).expect("it can be read");
        // Of stream 0 the first two came late, the third in time; stream 1, half a second later, got none of its two.
        assert_eq!(queue.missed(Duration::from_millis(2500)), 2 + 2);
        // Started over four seconds, stream 1 needs nothing yet.
        let spread = Plan { start_over: Some(Duration::from_secs(4)), ..plan };
        let files = (0..2).map(|_| File::open(&path).expect("ours")).collect();
        assert_eq!(Queue::new(&spread, files).missed(Duration::from_millis(2500)), 2);
    }
}
