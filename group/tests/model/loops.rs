//! Directories that lie in each other or in several others: no operation makes them, damage may. The check finds them also
//! where all counts agree, and a repair has every file found again.

use crate::rig::{Rig, Shape, checked, pattern};
use base::{At, FileKind, Ino, Sync, Volume};
use runtime::Runtime;
use runtime::sim::World;
use std::sync::Arc;
use store::Opening;
use store::format::{keys, values};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit};
use store::repair::{Depth, repair};

/// No counter has come so far.
const COOKIE: u64 = 1 << 40;

/// A closed brick: `a/b/c/file` and `d`, all in one volume.
struct Closed {
    runtime: Runtime,
    index: ModelIndex,
    volume: Volume,
    a: Ino,
    b: Ino,
    c: Ino,
    d: Ino,
    file: Ino,
}

/// `shift`: other directories made before, so that these ones come to lie in other groups.
async fn closed(runtime: Runtime, shift: u64) -> Closed {
    let rig = Rig::new(runtime, Shape::SMALL).await;
    let volume = rig.volume.clone();
    for number in 0..shift {
        rig.mkdir(volume.root, &number.to_string()).await.expect("there is room");
    }
    let a = rig.mkdir(volume.root, "a").await.expect("there is room");
    let b = rig.mkdir(a, "b").await.expect("there is room");
    let c = rig.mkdir(b, "c").await.expect("there is room");
    let d = rig.mkdir(volume.root, "d").await.expect("there is room");
    let file = rig.create(c, "file").await.expect("there is room");
    rig.write(file, At::End, &pattern(1, 10_000), Sync::Ordered).await.expect("there is room");
    let (runtime, index) = rig.close().await;
    Closed { runtime, index, volume, a, b, c, d, file }
}

impl Closed {
    fn change(&self, edits: Vec<IndexEdit>) {
        self.index.write(edits).expect("the model index writes");
        self.index.persist().expect("the model index is durable");
    }
    /// Changes an inode's row.
    fn inode(&self, ino: Ino, change: impl Fn(&mut base::Inode)) {
        let key = keys::inode(self.volume.id, ino);
        let row = self.index.get(&key).expect("the model index reads").expect("it is there");
        let mut inode = values::decode_inode(&row).expect("an inode");
        change(&mut inode);
        self.change(vec![IndexEdit::Put(key, values::encode_inode(&inode))]);
    }
    /// A directory gets one more name; all counts are as they must be.
    fn link(&self, dir: Ino, name: &str, ino: Ino) {
        let (volume, kind) = (self.volume.id, FileKind::Directory);
        self.change(vec![
            IndexEdit::Put(keys::entry(volume, dir, name.as_bytes()), values::encode_entry(ino, kind, COOKIE)),
            IndexEdit::Put(keys::cookie(volume, dir, COOKIE), values::encode_cookie(name.as_bytes(), ino, kind)),
        ]);
        self.inode(dir, |inode| (inode.links, inode.entries) = (inode.links + 1, inode.entries + 1));
    }
    /// A directory's name goes; all counts are as they must be.
    fn unlink(&self, dir: Ino, name: &str) {
        let key = keys::entry(self.volume.id, dir, name.as_bytes());
        let row = self.index.get(&key).expect("the model index reads").expect("it is there");
        let (_, _, cookie) = values::decode_entry(&row).expect("an entry");
        self.change(vec![IndexEdit::Delete(key), IndexEdit::Delete(keys::cookie(self.volume.id, dir, cookie))]);
        self.inode(dir, |inode| (inode.links, inode.entries) = (inode.links - 1, inode.entries - 1));
    }
    /// The check says this and nothing else, and a repair mends it. Returns the brick.
    async fn mended(&self, found: &str) -> Rig {
        let findings = checked(&self.runtime, &self.index).await.findings;
        assert!(findings.len() == 1 && findings[0].starts_with(found), "{found:?} in {findings:#?}");
        let opening = Opening::read_wholly(self.runtime.clone(), Arc::new(self.index.clone()), true).await;
        let done = repair(&opening.expect("it can be read"), Depth::All, &mut |_| ()).await.expect("a healthy device");
        assert!(done.lost.is_empty() && !done.mended.is_empty(), "{done:#?}");
        assert_eq!(checked(&self.runtime, &self.index).await.findings, [""; 0]);
        let (runtime, index) = (self.runtime.clone(), self.index.clone());
        Rig::existing((runtime, index), Shape::SMALL, self.volume.clone()).await
    }
    /// The file is where this path leads, from the root on.
    async fn is_at(&self, rig: &Rig, path: &[&str]) {
        let mut at = self.volume.root;
        for name in path {
            at = rig.lookup(at, name).await.unwrap_or_else(|error| panic!("{name} of {path:?}: {error:?}"));
        }
        assert_eq!(at, self.file);
        assert!(rig.read(at, 0, 20_000).await == Ok(pattern(1, 10_000)));
    }
}

fn on_closed(test: impl AsyncFnOnce(Closed)) {
    on_shifted(0, test);
}

fn on_shifted(shift: u64, test: impl AsyncFnOnce(Closed)) {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async { test(closed(runtime, shift).await).await });
}

#[test]
fn directories_that_lie_in_each_other_are_found_and_hung_up_again() {
    on_closed(async |brick| {
        let Closed { a, b, c, .. } = brick;
        brick.unlink(brick.volume.root, "a");
        brick.link(b, "up", a);
        brick.inode(a, |inode| inode.parent = b);
        let listed = if a < b { format!("{a}, {b}") } else { format!("{b}, {a}") };
        let found = format!("directories {listed} of volume 1 lie in each other: no path leads to them, nor to 1 dir");
        let rig = brick.mended(&found).await;
        let first = a.min(b);
        let top = format!("#{first}");
        // Whichever of the two has come to lost+found, the other is in it.
        let path: &[&str] = if first == a { &["b", "c", "file"] } else { &["c", "file"] };
        brick.is_at(&rig, &[&["lost+found", &top], path].concat()).await;
        rig.create(c, "new").await.expect("there is room");
        rig.close().await;
    });
}

#[test]
fn a_directory_in_itself_is_found_and_hung_up_again() {
    on_closed(async |brick| {
        brick.unlink(brick.b, "c");
        brick.link(brick.c, "c", brick.c);
        brick.inode(brick.c, |inode| inode.parent = brick.c);
        let found = format!("directories {} of volume 1 lie in each other: no path", brick.c);
        let rig = brick.mended(&found).await;
        brick.is_at(&rig, &["lost+found", &format!("#{}", brick.c), "file"]).await;
        rig.close().await;
    });
}

#[test]
fn a_directory_of_two_names_keeps_the_one_that_leads_up() {
    let mut misleading = 0;
    for (which, shift) in (0..7).flat_map(|which| (0..4).map(move |shift| (which, shift))) {
        on_shifted(shift, async |brick| {
            let Closed { a, b, c, d, .. } = brick;
            let root = brick.volume.root;
            // Beside its own name one has another, elsewhere, in itself, or below itself.
            let (twice, own, second) =
                [(a, root, d), (a, root, a), (a, root, b), (a, root, c), (b, a, b), (b, a, c), (c, b, c)][which];
            let below = second != d;
            misleading += u64::from(below && (second.group(), second) < (own.group(), own));
            brick.link(second, "again", twice);
            brick.inode(twice, |inode| inode.parent = if below { second } else { inode.parent });
            let rig = brick.mended(&format!("directory {twice} of volume 1 has 2 names; ")).await;
            brick.is_at(&rig, &["a", "b", "c", "file"]).await;
            assert!(rig.lookup(second, "again").await.is_err());
            rig.close().await;
        });
    }
    assert!(misleading > 0, "of some the wrong name comes first");
}

#[test]
fn a_root_with_a_name_loses_it() {
    on_closed(async |brick| {
        brick.link(brick.c, "up", brick.volume.root);
        let found = format!("directory {} of volume 1, which is the root, has 1 names", brick.volume.root);
        let rig = brick.mended(&found).await;
        brick.is_at(&rig, &["a", "b", "c", "file"]).await;
        assert!(rig.lookup(brick.c, "up").await.is_err());
        rig.close().await;
    });
}

#[test]
fn a_directory_says_in_which_it_lies() {
    on_closed(async |brick| {
        brick.inode(brick.b, |inode| inode.parent = brick.d);
        let rig = brick.mended(&format!("directory {} of volume 1 lies in {}, and says in", brick.b, brick.a)).await;
        brick.is_at(&rig, &["a", "b", "c", "file"]).await;
        rig.close().await;
    });
}
