//! Directories and where their names are: each should lie in one that lies in another, up to a root.

use base::{Ino, VolumeId};
use std::collections::BTreeMap;

/// A directory.
type Dir = (VolumeId, Ino);

/// Directories by what they lie in, as far as their names tell: a name that comes later counts.
#[derive(Default)]
pub(crate) struct Tree {
    above: BTreeMap<Dir, Node>,
}

#[derive(Clone, Copy)]
struct Node {
    dir: Ino,
    way: Way,
}

/// The end of the way up from a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    /// It is being walked.
    Walked,
    /// A root, or a directory without a name, which is another finding.
    Up,
    /// The loop of this number.
    Round(usize),
}

/// Directories that lie in each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Loop {
    /// They, in the order of their numbers.
    pub dirs: Vec<Ino>,
    /// Number of other directories in them, at any depth.
    pub below: u64,
}

impl Tree {
    /// A directory has a name in another one.
    pub fn add(&mut self, of: Dir, dir: Ino) {
        self.above.insert(of, Node { dir, way: Way::Unknown });
    }
    /// A directory lies in nothing.
    pub fn remove(&mut self, of: Dir) {
        self.above.remove(&of);
    }
    /// The directory that contains a directory.
    pub fn above(&self, of: Dir) -> Option<Ino> {
        self.above.get(&of).map(|node| node.dir)
    }
    /// All loops, by volume. Each directory is walked once.
    pub fn loops(mut self) -> Vec<(VolumeId, Loop)> {
        let mut loops = Vec::new();
        let all: Vec<Dir> = self.above.keys().copied().collect();
        for of in all {
            self.walk(of, &mut loops);
        }
        loops
    }

    fn walk(&mut self, of: Dir, loops: &mut Vec<(VolumeId, Loop)>) {
        let volume = of.0;
        let mut path = Vec::new();
        let mut at = of.1;
        let way = loop {
            match self.above.get_mut(&(volume, at)) {
                None => break Way::Up,
                Some(node) if node.way == Way::Unknown => {
                    node.way = Way::Walked;
                    path.push(at);
                    at = node.dir;
                }
                Some(node) if node.way == Way::Walked => {
                    let first = path.iter().position(|ino| *ino == at).expect("it is on the way that is walked");
                    let mut dirs = path.split_off(first);
                    loops.push((volume, Loop { dirs: Vec::new(), below: 0 }));
                    let way = Way::Round(loops.len() - 1);
                    dirs.iter().for_each(|ino| self.note((volume, *ino), way));
                    dirs.sort_unstable();
                    loops.last_mut().expect("just pushed").1.dirs = dirs;
                    break way;
                }
                Some(node) => break node.way,
            }
        };
        if let Way::Round(number) = way {
            loops[number].1.below += path.len() as u64;
        }
        path.into_iter().for_each(|ino| self.note((volume, ino), way));
    }

    fn note(&mut self, of: Dir, way: Way) {
        self.above.get_mut(&of).expect("it was walked").way = way;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops(edges: &[(u64, u64)]) -> Vec<(Vec<u64>, u64)> {
        let mut tree = Tree::default();
        edges.iter().for_each(|(of, dir)| tree.add((VolumeId(1), Ino(*of)), Ino(*dir)));
        // The same numbers in another volume are others.
        tree.add((VolumeId(2), Ino(1)), Ino(9));
        let numbers = |lost: Loop| (lost.dirs.into_iter().map(|ino| ino.0).collect(), lost.below);
        tree.loops().into_iter().map(|(_, lost)| numbers(lost)).collect()
    }

    #[test]
    fn loops_are_found_and_what_hangs_from_them() {
        assert_eq!(loops(&[(2, 1), (3, 2), (4, 2), (5, 4)]), []);
        assert_eq!(loops(&[(2, 2), (3, 1)]), [(vec![2], 0)]);
        assert_eq!(loops(&[(2, 3), (3, 2), (4, 3), (5, 4), (6, 1)]), [(vec![2, 3], 2)]);
        // Reached from a directory whose number is smaller, and two loops side by side.
        assert_eq!(loops(&[(2, 7), (7, 8), (8, 9), (9, 7), (4, 5), (5, 4)]), [(vec![7, 8, 9], 1), (vec![4, 5], 0)]);
    }
}
