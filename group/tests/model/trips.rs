//! The number of times that operations read the index in the pool. The model engine has half of its rows in memory, so
//! that look-ups that are repeated there show.

use crate::rig::{Rig, Shape, name, pattern};
use base::{At, Ino, Kind, Op, Seek, Sync};
use runtime::sim::World;
use runtime::tasks::MakeTask;
use runtime::{Runtime, Tasks};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A world's tasks, with a count of the jobs that clients have waited for.
struct Pool {
    tasks: Arc<dyn Tasks>,
    jobs: AtomicU64,
}

impl Pool {
    fn of(runtime: &Runtime) -> (Arc<Pool>, Runtime) {
        let pool = Arc::new(Pool { tasks: runtime.tasks.clone(), jobs: AtomicU64::new(0) });
        let runtime = Runtime { tasks: pool.clone(), ..runtime.clone() };
        (pool, runtime)
    }
    /// Jobs since the last call.
    fn jobs(&self) -> u64 {
        self.jobs.swap(0, Ordering::Relaxed)
    }
}

impl Tasks for Pool {
    fn cores(&self) -> usize {
        self.tasks.cores()
    }
    fn core(&self) -> usize {
        self.tasks.core()
    }
    fn spawn(&self, core: usize, make: MakeTask) {
        self.tasks.spawn(core, make);
    }
    fn blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.jobs.fetch_add(1, Ordering::Relaxed);
        self.tasks.blocking(job);
    }
    fn background(&self, job: Box<dyn FnOnce() + Send>) {
        self.tasks.background(job);
    }
}

const FILES: u64 = 40;

/// Files with some bytes each, and names that are not there beside them.
async fn fill(rig: &Rig, dir: Ino) {
    for number in 0..FILES {
        let (text, bytes) = (format!("f{number}"), pattern(number, 5000));
        assert_eq!(rig.lookup(dir, &text).await, Err(Kind::NotFound));
        let file = rig.create(dir, &text).await.expect("a new file");
        rig.write(file, At::Offset(0), &bytes, Sync::Ordered).await.expect("a write");
        rig.write(file, At::Offset(9000), &[7], Sync::Ordered).await.expect("a write behind a hole");
        assert_eq!(rig.read(file, 0, 5000).await, Ok(bytes));
    }
}

async fn look_at_all(rig: &Rig, dir: Ino) {
    for number in 0..FILES {
        let file = rig.lookup(dir, &format!("f{number}")).await.expect("it was made");
        assert_eq!(rig.read(file, 0, 5000).await, Ok(pattern(number, 5000)));
        assert_eq!(rig.read(file, 5000, 4001).await, Ok([vec![0; 4000], vec![7]].concat()));
    }
    assert_eq!(rig.list(dir, 7).await.expect("a directory").len() as u64, FILES);
}

#[test]
pub fn what_is_younger_than_the_index_is_not_looked_for_there() {
    let mut world = World::new(1);
    let (pool, runtime) = Pool::of(&world.runtime());
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        rig.checkpoint().await;
        let dir = rig.mkdir(rig.volume.root, "dir").await.expect("a new directory");
        pool.jobs();
        fill(&rig, dir).await;
        look_at_all(&rig, dir).await;
        assert_eq!(pool.jobs(), 0, "there is nothing to be found");
        // From here on the index has them, and the caches of this brick only a few.
        rig.checkpoint().await;
        look_at_all(&rig, dir).await;
        assert!(pool.jobs() > FILES / 2, "they were looked for where they are");
        let rig = rig.reopen().await;
        look_at_all(&rig, dir).await;
        rig.done(Op::Unlink { parent: dir, name: name("f7") }).await.expect("it is there");
        rig.checkpoint().await;
        assert_eq!(rig.lookup(dir, "f7").await, Err(Kind::NotFound));
        rig.reopen().await;
    });
}

#[test]
fn one_trip_finds_a_file_and_another_one_its_blocks() {
    let mut world = World::new(1);
    let (pool, runtime) = Pool::of(&world.runtime());
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let dir = rig.mkdir(rig.volume.root, "dir").await.expect("a new directory");
        fill(&rig, dir).await;
        let rig = rig.reopen().await;
        rig.lookup(rig.volume.root, "dir").await.expect("it was made");
        let (mut found, mut read) = (0, 0);
        for number in 0..FILES {
            pool.jobs();
            let file = rig.lookup(dir, &format!("f{number}")).await.expect("it was made");
            let trips = pool.jobs();
            assert!(trips <= 1, "{trips} trips to find a file");
            found += trips;
            rig.attr(Op::Open { ino: file, truncate: false }).await.expect("it is there");
            assert_eq!(pool.jobs(), 0, "who has found a file knows it");
            rig.read(file, 0, 5000).await.expect("it is there");
            rig.done(Op::Release { ino: file }).await.expect("it is open");
            let trips = pool.jobs();
            assert!(trips <= 1, "{trips} trips to read a file");
            read += trips;
        }
        assert!(found > 0 && read > 0, "half of the rows are not in memory: {found}, {read}");
        rig.reopen().await;
    });
}

#[test]
fn requests_count_their_trips() {
    let mut world = World::new(1);
    let (pool, runtime) = Pool::of(&world.runtime());
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let dir = rig.mkdir(rig.volume.root, "dir").await.expect("a new directory");
        fill(&rig, dir).await;
        let rig = rig.reopen().await;
        pool.jobs();
        let (mut trips, mut none) = (0, 0);
        for number in 0..FILES {
            let parent = dir;
            let file = rig.lookup(dir, &format!("f{number}")).await.expect("it was made");
            let sync = Sync::Ordered;
            let ops = [
                Op::Lookup { parent, name: name(&format!("f{}", number / 2)) },
                Op::ReadDir { ino: dir, cookie: 0, count: 9, plus: true },
                Op::Read { ino: file, offset: 0, length: 5000 },
                Op::Seek { ino: file, offset: 0, what: Seek::Hole },
                Op::Write { ino: file, at: At::Offset(100), sync, kill_privileges: false },
                Op::GetXattr { ino: file, name: name("user.a") },
                Op::GetAttr { ino: file },
            ];
            pool.jobs();
            for op in ops {
                let context = rig.context();
                let data = [7; 10];
                let _ = rig.call_as(&context, op.clone(), matches!(op, Op::Write { .. }).then_some(&data)).await;
                let jobs = pool.jobs();
                assert_eq!(rig.hops(&context), jobs, "{op:?}");
                (trips, none) = (trips + jobs, none + u64::from(jobs == 0));
            }
        }
        assert!(trips > FILES && none > FILES, "{trips} trips, {none} requests without any");
        rig.reopen().await;
    });
}
