//! Scripts in `testdata`: operations by path, a line `----`, then what they decide. `REWRITE=1` accepts what comes.
//! Blocks are separated by empty lines; a line that begins with `+` is carried out without being shown.

use super::world::World;
use crate::{Caller, Decision, Part, Stop, TIME_KEPT};
use base::{Edit, GroupId, Ino, Inode, Name, Op, SetAttr, SetTime, Time};
use std::fmt::Write;
use std::path::PathBuf;

struct Script {
    world: World,
    root: Ino,
}

impl Script {
    fn new() -> Script {
        let (mut world, root) = World::new(8);
        world.spread = Some(GroupId(0));
        Script { world, root }
    }

    fn find(&self, path: &str) -> Ino {
        let mut ino = self.root;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let name = Name::new(part.as_bytes()).expect("a good name");
            ino = self
                .world
                .entries_of(ino)
                .find(|(found, _)| **found == name)
                .map(|(_, entry)| entry.ino)
                .unwrap_or_else(|| panic!("no {path} in the script's world"));
        }
        ino
    }

    /// The directory of a path and the name in it.
    fn spot(&self, path: &str) -> (Ino, Name) {
        let (dir, name) = path.rsplit_once('/').expect("an absolute path");
        (self.find(dir), Name::new(name.as_bytes()).expect("a good name"))
    }

    /// One line; what it decides, as text.
    fn line(&mut self, line: &str) -> String {
        self.world.clock += 10;
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            ["group", group] => self.world.spread = Some(GroupId(group.parse().expect("a number"))),
            ["clock", clock] => self.world.clock = clock.parse().expect("a number"),
            ["open", path] => *self.world.opens.entry(self.find(path)).or_default() += 1,
            ["close", path] => {
                let ino = self.find(path);
                self.world.release(ino);
            }
            ["hardlink", path, new] => self.hard_link(path, new),
            _ => return self.operation(&words),
        }
        String::new()
    }

    /// There is no operation for it yet, but removal must be ready for it.
    fn hard_link(&mut self, path: &str, new: &str) {
        let (from, old_name) = self.spot(path);
        let (dir, name) = self.spot(new);
        let volume = self.world.volume;
        let mut entry = self.world.entries[&(volume, from, old_name)];
        self.world.numbers.cookies += 1;
        entry.cookie = self.world.numbers.cookies;
        self.world.entries.insert((volume, dir, name.clone()), entry);
        self.world.cookies.insert((volume, dir, entry.cookie), name);
        self.world.inodes.get_mut(&(volume, entry.ino)).expect("is there").links += 1;
        self.world.inodes.get_mut(&(volume, dir)).expect("is there").entries += 1;
    }

    fn operation(&mut self, words: &[&str]) -> String {
        let op = self.parse(words);
        let caller = Caller { volume: self.world.volume, uid: 1, gid: 2, umask: 0 };
        match self.world.decide(&op, &caller) {
            Ok(decision) => {
                self.world.apply_all(&decision.parts);
                show(&decision)
            }
            Err(Stop::Error(error)) => format!("{error:?}\n"),
            Err(Stop::Need(need)) => panic!("{need:?} though all is in sight"),
        }
    }

    fn parse(&self, words: &[&str]) -> Op {
        let (parent, name) = self.spot(words[1]);
        match words {
            ["create", _] => Op::Create { parent, name, mode: 0o644, exclusive: true },
            ["mkdir", _] => Op::MakeDir { parent, name, mode: 0o755 },
            ["symlink", _, target] => Op::SymLink { parent, name, target: target.as_bytes().into() },
            ["unlink", _] => Op::Unlink { parent, name },
            ["rmdir", _] => Op::RemoveDir { parent, name },
            ["setattr", path, wishes @ ..] => Op::SetAttr { ino: self.find(path), set: wishes_of(wishes).into() },
            ["truncate", path] => Op::Open { ino: self.find(path), truncate: true },
            ["rename", _, new, rest @ ..] => {
                let (new_parent, new_name) = self.spot(new);
                let (no_replace, whiteout) = (rest.contains(&"no_replace"), rest.contains(&"whiteout"));
                Op::Rename { parent, name, new_parent, new_name, no_replace, whiteout }
            }
            _ => panic!("not a line of a script: {words:?}"),
        }
    }
}

fn wishes_of(wishes: &[&str]) -> SetAttr {
    let mut set = SetAttr::default();
    for wish in wishes {
        let (what, value) = wish.split_once('=').unwrap_or((wish, "0"));
        let time = || match value {
            "now" => SetTime::Now,
            _ => SetTime::To(Time(value.parse().expect("a number"))),
        };
        match what {
            "mode" => set.mode = Some(u16::from_str_radix(value, 8).expect("an octal number")),
            "uid" => set.uid = Some(value.parse().expect("a number")),
            "gid" => set.gid = Some(value.parse().expect("a number")),
            "size" => set.size = Some(value.parse().expect("a number")),
            "mtime" => set.mtime = Some(time()),
            "atime" => set.atime = Some(time()),
            "kill" => set.kill_privileges = true,
            _ => panic!("not an attribute: {wish}"),
        }
    }
    set
}

fn show(decision: &Decision) -> String {
    let mut text = String::new();
    for Part { volume, group, edits } in &decision.parts {
        writeln!(text, "group {group} volume {volume}").expect("a string");
        edits.iter().for_each(|edit| writeln!(text, "  {}", show_edit(edit)).expect("a string"));
    }
    if decision.parts.is_empty() {
        text.push_str("nothing changes\n");
    }
    text
}

fn show_edit(edit: &Edit) -> String {
    match edit {
        Edit::InodePut { ino, inode } => format!("put {ino:?} {}", show_inode(inode)),
        Edit::InodeTouch { ino, links, entries, mtime, ctime } => {
            let mtime = if *mtime == TIME_KEPT { "kept".to_string() } else { mtime.0.to_string() };
            format!("touch {ino:?} links {links:+} entries {entries:+} mtime {mtime} ctime {}", ctime.0)
        }
        Edit::InodeProject { ino, project } => format!("project {ino:?} is {project}"),
        Edit::InodeParent { ino, parent } => format!("parent {ino:?} is {parent:?}"),
        Edit::InodeCut { ino, size, trim, time } => format!("cut {ino:?} size {size} trim {trim} time {}", time.0),
        Edit::InodeDrop { ino } => format!("drop {ino:?}"),
        Edit::OrphanPut { ino } => format!("orphan {ino:?}"),
        Edit::EntryPut { dir, name, ino, kind, cookie } => {
            format!("entry put {dir:?} {name:?} -> {ino:?} {kind:?} cookie {cookie}")
        }
        Edit::EntryDrop { dir, name, cookie } => format!("entry drop {dir:?} {name:?} cookie {cookie}"),
        Edit::TargetPut { ino, target } => format!("target {ino:?} {:?}", String::from_utf8_lossy(target)),
        Edit::IntentPut(intent) => {
            let follow: Vec<String> =
                intent.follow.iter().map(|follow| format!("group {} x{}", follow.group, follow.edits.len())).collect();
            format!("intent {}.{} -> {}", intent.id.group, intent.id.number, follow.join(", "))
        }
        Edit::FollowedPut { id } => format!("followed {}.{}", id.group, id.number),
        other => panic!("no script decides this: {other:?}"),
    }
}

fn show_inode(inode: &Inode) -> String {
    let Inode { kind, mode, uid, gid, links, size, trim, entries, parent, atime, mtime, ctime, dead, .. } = inode;
    let dead = if *dead { " dead" } else { "" };
    format!(
        "{kind:?} {mode:o} {uid}:{gid} links {links} size {size} trim {trim} entries {entries} parent {parent:?} \
         atime {} mtime {} ctime {}{dead}",
        atime.0, mtime.0, ctime.0
    )
}

/// The script with its expectations replaced by what came.
fn replay(text: &str) -> String {
    let mut script = Script::new();
    let mut blocks = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let asked = block.split("----").next().expect("split gives at least one").trim_matches('\n');
        let mut came = String::new();
        for line in asked.lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix('+') {
                Some(silent) => drop(script.line(silent)),
                None => came.push_str(&script.line(line)),
            }
        }
        blocks.push(if came.is_empty() { format!("{asked}\n") } else { format!("{asked}\n----\n{came}") });
    }
    blocks.join("\n")
}

fn scripts() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir("testdata")
        .expect("testdata is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn scripts_decide_as_written() {
    let paths = scripts();
    assert!(!paths.is_empty());
    for path in paths {
        let wanted = std::fs::read_to_string(&path).expect("readable");
        let came = replay(&wanted);
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, came).expect("writable");
        } else {
            assert_eq!(came, wanted, "{} (REWRITE=1 accepts)", path.display());
        }
    }
}
