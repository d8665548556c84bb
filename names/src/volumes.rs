//! The catalogue of volumes: volume 0, group 0.

use crate::decision::{Decision, Draft};
use crate::view::{Caller, Need, Stop, View, known, refuse};
use base::limits::{NAME_BYTES_MAX, VOLUME_NAME_BYTES_MAX};
use base::{
    Edit, FileKind, GroupId, Ino, Inode, Kind, Layer, Limit, Limits, Name, Outcome, Reply, TierPolicy, Volume, VolumeId,
};

const CATALOGUE: VolumeId = VolumeId(0);
const FIRST_GROUP: GroupId = GroupId(0);
const _: () = assert!(VOLUME_NAME_BYTES_MAX <= NAME_BYTES_MAX);

/// VolumeCreate. The catalogue's record decides; the root directory is made in the new volume, in the same group, by a
/// record that follows.
pub(crate) fn create(
    view: &mut dyn View,
    caller: &Caller,
    name: &Name,
    size_bytes: Option<u64>,
) -> Result<Decision, Stop> {
    if name.as_bytes().len() > VOLUME_NAME_BYTES_MAX {
        return refuse(Kind::NameTooLong, "a volume's name has at most 63 bytes");
    }
    if find(view, name)?.is_some() {
        return refuse(Kind::Exists, "a volume has this name");
    }
    let now = view.now();
    let root = view.fresh_ino(FIRST_GROUP)?;
    assert!(root.group() == FIRST_GROUP, "a fresh number belongs to the group that gave it");
    let id = view.fresh_volume()?;
    assert!(id != CATALOGUE, "volume 0 is the catalogue itself");
    let inode = Inode {
        mode: 0o755,
        uid: caller.uid,
        gid: caller.gid,
        links: 2,
        ..Inode::blank(FileKind::Directory, root, root, now)
    };
    let volume = Volume {
        id,
        name: name.clone(),
        root,
        created: now,
        size_bytes,
        layers: Box::default(),
        policy: TierPolicy::default(),
        limits: Limits::NONE,
    };
    let mut draft = Draft::new(CATALOGUE, FIRST_GROUP);
    draft.edit_in(CATALOGUE, FIRST_GROUP, Edit::VolumePut(volume.clone()));
    draft.edit_in(id, FIRST_GROUP, Edit::InodePut { ino: root, inode });
    draft.decide(view, Reply::Volume(volume), Outcome::Inode(root))
}

/// VolumeDelete, only the catalogue's part. The caller makes every group drop what it holds of the volume.
pub(crate) fn delete(view: &mut dyn View, name: &Name) -> Result<Decision, Stop> {
    let Some(volume) = find(view, name)? else {
        return refuse(Kind::NotFound, "no volume has this name");
    };
    let mut draft = Draft::new(CATALOGUE, FIRST_GROUP);
    draft.edit_in(CATALOGUE, FIRST_GROUP, Edit::VolumeDrop { id: volume.id });
    draft.decide(view, Reply::Done, Outcome::Done)
}

/// VolumeRename. Mounts are not disturbed: they know the volume by its number.
pub(crate) fn rename(view: &mut dyn View, name: &Name, new_name: &Name) -> Result<Decision, Stop> {
    if new_name.as_bytes().len() > VOLUME_NAME_BYTES_MAX {
        return refuse(Kind::NameTooLong, "a volume's name has at most 63 bytes");
    }
    let Some(volume) = find(view, name)? else {
        return refuse(Kind::NotFound, "no volume has this name");
    };
    if find(view, new_name)?.is_some() {
        return refuse(Kind::Exists, "a volume has this name");
    }
    change(view, name, Volume { name: new_name.clone(), ..volume })
}

/// VolumeResize. The caller has checked that the volume's content fits.
pub(crate) fn resize(view: &mut dyn View, name: &Name, size_bytes: Option<u64>) -> Result<Decision, Stop> {
    let Some(volume) = find(view, name)? else {
        return refuse(Kind::NotFound, "no volume has this name");
    };
    change(view, name, Volume { size_bytes, ..volume })
}

/// VolumeLayers.
pub(crate) fn set_layers(view: &mut dyn View, name: &Name, layers: &[Layer]) -> Result<Decision, Stop> {
    let Some(volume) = find(view, name)? else {
        return refuse(Kind::NotFound, "no volume has this name");
    };
    change(view, name, Volume { layers: layers.into(), ..volume })
}

/// VolumePolicy.
pub(crate) fn set_policy(view: &mut dyn View, name: &Name, policy: TierPolicy) -> Result<Decision, Stop> {
    let Some(volume) = find(view, name)? else {
        return refuse(Kind::NotFound, "no volume has this name");
    };
    change(view, name, Volume { policy, ..volume })
}

/// VolumeLimits.
pub(crate) fn set_limits(
    view: &mut dyn View,
    name: &Name,
    tree: Option<(u32, Ino)>,
    changed: &[(Limit, u64)],
) -> Result<Decision, Stop> {
    let Some(volume) = find(view, name)? else {
        return refuse(Kind::NotFound, "no volume has this name");
    };
    let limits = volume.limits.clone();
    let limits = match tree {
        Some((project, top)) => limits.with_tree(project, top, changed)?,
        None => limits.with(changed)?,
    };
    change(view, name, Volume { limits, ..volume })
}

/// Changes a volume's row by one record, so that a crash leaves the row either as it was or as it is to be.
fn change(view: &mut dyn View, name: &Name, volume: Volume) -> Result<Decision, Stop> {
    let mut draft = Draft::new(CATALOGUE, FIRST_GROUP);
    let root = volume.root;
    draft.edit_in(CATALOGUE, FIRST_GROUP, Edit::VolumeChange { name: name.clone(), volume: volume.clone() });
    draft.decide(view, Reply::Volume(volume), Outcome::Inode(root))
}

fn find(view: &mut dyn View, name: &Name) -> Result<Option<Volume>, Stop> {
    known(view.volume(name), || Need::Volume(name.clone()))
}
