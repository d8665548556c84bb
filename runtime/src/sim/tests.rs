use super::*;
use crate::disk::{self, FileId, OpenMode};
use crate::random::SplitMix;
use crate::{Runtime, Slice};

fn block(runtime: &Runtime, byte: u8) -> Vec<Slice> {
    let mut buffer = runtime.buffer(4096).expect("memory is left");
    buffer.fill(byte);
    vec![buffer.share().slice(0..4096)]
}

async fn write(runtime: &Runtime, file: FileId, page: u64, byte: u8, durable: bool) {
    let (_, result) = disk::write(&*runtime.disk, file, page * 4096, block(runtime, byte), durable).await;
    result.expect("no fault is planned");
}

#[test]
fn a_flushed_write_survives() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let file = runtime.disk.open("a", OpenMode::Create).expect("new");
            runtime.disk.allocate(file, 1 << 20).expect("space");
            runtime.disk.sync_names().expect("no fault");
            write(&runtime, file, 3, 7, false).await;
            disk::flush(&*runtime.disk, file).await.expect("no fault");
        });
        let image = world.crash(&mut SplitMix(seed));
        assert_eq!(image.length("a"), Some(1 << 20));
        assert_eq!(image.read("a", 3 * 4096, 4096).expect("there"), [7; 4096]);
    }
}
