//! A start without one of the disks (rule K3): each block that is not on it reads as it should, each that is fails as an error of the
//! device, the list of files that have some there is exact, and what others write meanwhile does no harm to what is there
//! once the disk is back.

use crate::index::CrashIndex;
use crate::model::Model;
use crate::world::{Served, context, serve};
use base::{At, FileKind, Ino, Kind, Name, Op, Reply, RequestId, SessionId, Sync, VolumeId};
use group::{Answer, Options};
use runtime::Runtime;
use runtime::random::SplitMix;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::check::affected;
use store::format::devices::DeviceId;

const BLOCK: u64 = base::limits::BLOCK_BYTES as u64;
/// Writes of others: more than the flash has free, in the same few places, so that segments die and are taken again.
const WRITES: u64 = 60;
const WRITE_BYTES: usize = 128 << 10;
const PLACES: u64 = 6;
/// Files in a part of the list: so few that it has many parts.
const PART_FILES: usize = 2;

struct Client<'a> {
    served: &'a Served,
    runtime: &'a Runtime,
    volume: VolumeId,
    requests: u64,
}

impl Client<'_> {
    async fn ask(&mut self, op: Op, bytes: usize) -> base::Result<Answer> {
        self.requests += 1;
        let data = match bytes {
            0 => None,
            _ => {
                let mut buffer = self.runtime.buffer(bytes)?;
                buffer.fill(self.requests as u8);
                Some(buffer)
            }
        };
        let context = context(self.volume, (SessionId(u64::MAX - 1), RequestId(self.requests)));
        self.served.call(&context, op, data).await
    }
}

/// Starts the brick, looks at all of it, and has others write. `stops`: it is stopped cleanly at the end. Returns the number of
/// blocks that could not be read. Errors: what is wrong.
pub async fn check(
    (runtime, index): (&Runtime, &Arc<CrashIndex>),
    (options, stops): (Options, bool),
    disk: DeviceId,
    model: &Model,
    rng: &mut SplitMix,
) -> Result<u64, String> {
    let served = serve(runtime.clone(), index.clone(), options).await;
    let served = served.map_err(|error| format!("the brick does not start without {disk:?}: {error:?}"))?;
    served.groups.checkpoint().await.map_err(|error| format!("no checkpoint without {disk:?}: {error:?}"))?;
    let listed = listed(&served, disk)?;
    let volumes = served.groups.volumes().await.map_err(|error| format!("no volumes: {error:?}"))?;
    let volume = volumes.iter().find(|volume| volume.name == crate::world::volume_name()).map(|volume| volume.id);
    let mut client = Client { served: &served, runtime, volume: volume.unwrap_or(VolumeId(0)), requests: 0 };
    let mut failed = BTreeMap::new();
    for (&ino, node) in model.nodes.iter().filter(|(_, node)| node.kind == FileKind::File) {
        let blocks = read(&mut client, ino, &node.bytes).await?;
        if blocks > 0 {
            failed.insert(ino, blocks);
        }
    }
    if failed != listed {
        return Err(format!("without {disk:?} these could not be read: {failed:?}, and these are listed: {listed:?}"));
    }
    write(&mut client, rng).await?;
    if stops {
        served.groups.close().await.map_err(|error| format!("no clean stop without {disk:?}: {error:?}"))?;
    }
    Ok(failed.values().sum())
}

/// Blocks by file, as the list says.
fn listed(served: &Served, disk: DeviceId) -> Result<BTreeMap<Ino, u64>, String> {
    let (mut all, mut after) = (BTreeMap::new(), None);
    loop {
        let part = match affected::list(served.groups.store(), disk, after, PART_FILES) {
            Ok(part) => part,
            // It has left the brick.
            Err(error) if error.kind == Kind::NotFound => return Ok(all),
            Err(error) => return Err(format!("no list of files: {error:?}")),
        };
        for file in part.files {
            if all.insert(file.ino, file.blocks).is_some() {
                return Err(format!("{:?} is listed twice", file.ino));
            }
        }
        match part.next {
            Some(_) => after = part.next,
            None => return Ok(all),
        }
    }
}

/// Reads a file block by block; how many could not be read.
async fn read(client: &mut Client<'_>, ino: Ino, bytes: &[u8]) -> Result<u64, String> {
    let mut failed = 0;
    for (number, expected) in (0..).zip(bytes.chunks(BLOCK as usize)) {
        let op = Op::Read { ino, offset: number * BLOCK, length: BLOCK as u32 };
        match client.ask(op, 0).await {
            Ok(Answer { data: Some(data), .. }) if data[..] == *expected => {}
            Err(error) if error.kind == Kind::Io && error.to_string().contains("missing") => failed += 1,
            Err(error) => return Err(format!("block {number} of {ino:?}: {error:?}")),
            Ok(_) => return Err(format!("block {number} of {ino:?} reads as something else")),
        }
    }
    Ok(failed)
}

/// Writes in a volume of its own. The brick may be full.
async fn write(client: &mut Client<'_>, rng: &mut SplitMix) -> Result<(), String> {
    let written = async {
        let name = Name::new(b"others").expect("a good name");
        client.volume = VolumeId(0);
        client.ask(Op::VolumeCreate { name: name.clone(), size_bytes: None }, 0).await?;
        let volume = client.served.groups.volume(&name).await?;
        client.volume = volume.id;
        let file = Op::Create { parent: volume.root, name, mode: 0o600, exclusive: true };
        let Reply::Attr(attr) = client.ask(file, 0).await?.reply else { panic!("a file has attributes") };
        for _ in 0..WRITES {
            let at = At::Offset(rng.below(PLACES) * WRITE_BYTES as u64);
            let sync = if rng.one_in(4) { Sync::Data } else { Sync::Ordered };
            client.ask(Op::Write { ino: attr.ino, at, sync, kill_privileges: false }, WRITE_BYTES).await?;
            if rng.one_in(16) {
                client.served.groups.checkpoint().await?;
            }
        }
        Ok::<_, base::Error>(())
    };
    match written.await {
        Err(error) if error.kind != Kind::NoSpace => Err(format!("a write while a disk is missing: {error:?}")),
        _ => Ok(()),
    }
}
