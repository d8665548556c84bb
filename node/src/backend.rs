//! The owner of the volumes that a daemon mounts: a brick of this machine, or a server.

use crate::admin::protocol::Status;
use crate::assembly::{self, Brick};
use crate::cli::Transport;
use crate::memory::buffer_shares;
use crate::network::Listener;
use crate::observe::{Gatherer, Learner};
use crate::remote::Remote;
use base::{Attr, Error, Ino, Kind, Op, Reply, Result, VolumeId};
use explain::snapshot::{LimitFigures, Tenant};
use front::fuse::{MountOptions, Serving};
use layer::{Context, Stack, Target};
use runtime::real::Directory;
use runtime::{Ledger, Span};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The owner of volumes.
pub enum Backend {
    /// A brick that this process serves.
    Brick(Brick),
    /// A server, for one of its volumes.
    Remote(Remote),
}

impl Backend {
    /// The brick. Errors: `Unsupported` at a client.
    pub fn brick(&self) -> Result<&Brick> {
        match self {
            Backend::Brick(brick) => Ok(brick),
            Backend::Remote(_) => {
                let what = "this daemon mounts a volume of a server: ask on the server, with its brick's directory";
                Err(Error::new(Kind::Unsupported, what))
            }
        }
    }
    /// The volumes, by name.
    pub fn volumes(&self) -> Result<Vec<base::Volume>> {
        match self {
            Backend::Brick(brick) => brick.volumes(),
            Backend::Remote(remote) => Ok(vec![remote.volume().clone()]),
        }
    }
    /// The volume of this name. Errors: `NotFound`.
    pub fn volume(&self, name: &str) -> Result<base::Volume> {
        match self {
            Backend::Brick(brick) => brick.volume(name),
            Backend::Remote(remote) if remote.volume().name.as_bytes() == name.as_bytes() => {
                Ok(remote.volume().clone())
            }
            Backend::Remote(_) => Err(Error::new(Kind::NotFound, "this daemon mounts another volume").with(name)),
        }
    }
    /// A volume's stack.
    pub fn stack(&self, volume: &base::Volume) -> Arc<Stack> {
        match self {
            Backend::Brick(brick) => brick.stack(volume),
            Backend::Remote(remote) => remote.stack().clone(),
        }
    }
    /// The figures of a volume's limits, which hold where its brick is.
    pub fn limits(&self, volume: &base::Volume) -> Vec<LimitFigures> {
        self.brick().map(|brick| brick.limits(volume)).unwrap_or_default()
    }
    /// A volume's share of the cores.
    pub fn tenant(&self, volume: &base::Volume) -> Tenant {
        let name = String::from_utf8_lossy(volume.name.as_bytes()).into_owned();
        Tenant { volume: name, served_ns: self.stack(volume).flow().served_ns() }
    }
    /// Mounts a volume and answers its requests. `listener`: the way of clients, which may have the volume too.
    pub fn serve(
        &self,
        volume: &base::Volume,
        options: &MountOptions,
        transport: Transport,
        listener: Option<&Listener>,
    ) -> Result<Serving> {
        match self {
            Backend::Brick(brick) => brick.serve(volume, options, transport, listener),
            Backend::Remote(remote) => {
                let mount = assembly::mount(remote.runtime(), &remote.entries, options, transport)?;
                front::fuse::serve(remote.runtime(), mount, remote.stack().clone(), remote.identity())
            }
        }
    }
    /// The places from which snapshots come.
    pub fn gatherer(&self, data: &Directory) -> Result<Gatherer> {
        let (runtime, probe, memory_max) = match self {
            Backend::Brick(brick) => (brick.runtime(), brick.reactors()?.probe(), brick.memory_max_bytes()),
            Backend::Remote(remote) => (remote.runtime(), remote.reactors()?.probe(), remote.memory_max_bytes()),
        };
        let (groups, client) = match self {
            Backend::Brick(brick) => (Some(brick.groups().clone()), None),
            Backend::Remote(remote) => (None, Some((remote.server_name(), remote.client().clone()))),
        };
        // What a client has learned outlives its mount.
        let learned = match self {
            Backend::Brick(_) => data.clone(),
            Backend::Remote(remote) => remote.learned().unwrap_or_else(|| data.clone()),
        };
        let session = client.as_ref().map(|(_, client)| client.clone());
        Ok(Gatherer {
            runtime: runtime.clone(),
            data: data.path().to_path_buf(),
            disks: OnceLock::new(),
            buffer_bytes_max: buffer_shares(memory_max).0,
            learner: Learner::start(learned, (runtime.clone(), probe.clone()), session, groups.clone()),
            client,
            groups,
            started_ns: runtime.clock.now_ns(),
            is_ending: AtomicBool::new(false),
            probe,
        })
    }
    /// The times of all requests.
    pub fn ledger(&self) -> &Ledger {
        match self {
            Backend::Brick(brick) => brick.ledger(),
            Backend::Remote(remote) => &remote.runtime().ledger,
        }
    }
    /// The attributes of those of these inodes that exist.
    pub fn attributes(&self, inodes: Vec<(VolumeId, Ino)>) -> Result<Vec<(VolumeId, Attr)>> {
        let (target, reactors) = match self {
            Backend::Brick(brick) => (Target::from(brick.groups().clone()), brick.reactors()?),
            Backend::Remote(remote) => (Target::from(remote.client().clone()), remote.reactors()?),
        };
        assembly::on_core(&reactors, move || async move {
            let mut found = Vec::with_capacity(inodes.len());
            for (volume, ino) in inodes {
                let context = Context::own(volume, Span::start(target.runtime().stamp()));
                match target.call(&context, Op::GetAttr { ino }, None).await.map(|answer| answer.reply) {
                    Ok(Reply::Attr(attr)) => found.push((volume, attr)),
                    Ok(other) => panic!("attributes are answered with them, not {other:?}"),
                    // It is gone meanwhile.
                    Err(_) => {}
                }
            }
            Ok(found)
        })
    }
    /// The state, as `sinter status` shows it.
    pub fn status(&self) -> Status {
        match self {
            Backend::Brick(brick) => brick.status(),
            Backend::Remote(remote) => remote.status(),
        }
    }
    /// News for an operator since the last call, a line each. Not to be called on a core: it blocks.
    pub fn news(&self) -> Vec<String> {
        match self {
            Backend::Brick(brick) => brick.bad_news(),
            Backend::Remote(remote) => remote.news(),
        }
    }
    /// Returns once every core has done something: a core that hangs is seen by whoever waits for this.
    pub fn turn_round(&self) -> Result<()> {
        let reactors = match self {
            Backend::Brick(brick) => brick.reactors()?,
            Backend::Remote(remote) => remote.reactors()?,
        };
        (0..reactors.cores()).try_for_each(|core| reactors.run(core, || async {}))
    }
    /// Has nothing wait any more until the daemon has ended, neither for limits nor for a server that is away.
    pub fn end_waits(&self) {
        match self {
            Backend::Brick(brick) => brick.lift_limits(),
            Backend::Remote(remote) => remote.give_up_waiting(),
        }
    }
    /// Makes everything durable. From then on nothing can be done: mounts must refuse what they are asked.
    pub fn commit(&self) -> Result<()> {
        match self {
            Backend::Brick(brick) => brick.commit(),
            Backend::Remote(remote) => remote.commit(),
        }
    }
    /// Stops the cores, after `commit`.
    pub fn stop(&self) {
        match self {
            Backend::Brick(brick) => brick.stop(),
            Backend::Remote(remote) => remote.stop(),
        }
    }
}
