//! Calls that would leave the measured and simulated world, and where they are allowed after all.

use crate::check::floors::is_product_path;
use crate::scan::{line_of, words};
use crate::tree::Tree;

/// Words that product code may not contain.
struct Ban {
    words: &'static [&'static str],
    instead: &'static str,
    /// Paths that begin so are exempt.
    except: &'static [&'static str],
}

/// The rooms that touch the operating system or assemble the real world.
const REAL: &[&str] = &["runtime/src/real", "front/", "console/", "node/", "index_rocksdb/"];

const BANS: [Ban; 10] = [
    Ban {
        words: &["Instant", "SystemTime", "UNIX_EPOCH"],
        instead: "runtime::Clock, which the simulation controls",
        // Locks are timed with the machine's clock even under simulation: their figures decide nothing.
        except: &["runtime/src/real", "front/", "console/", "node/", "index_rocksdb/", "runtime/src/lock.rs"],
    },
    Ban {
        words: &["thread::spawn", "thread::sleep", "thread::Builder", "thread::scope"],
        instead: "runtime::Tasks, or Clock::sleep",
        except: REAL,
    },
    Ban { words: &["std::fs", "std::net", "std::process", "std::env"], instead: "runtime::Disk", except: REAL },
    Ban {
        words: &["libc", "rustix", "io_uring"],
        instead: "a door of runtime",
        except: &["runtime/src/real", "front/", "node/", "index_rocksdb/", "runtime/src/buffer.rs"],
    },
    Ban {
        words: &["rand", "getrandom", "RandomState"],
        instead: "runtime::Random, which the seed controls",
        except: REAL,
    },
    Ban {
        words: &["println!", "eprintln!", "print!", "eprint!"],
        instead: "a figure in the ledger, or an error",
        // A failing simulation prints its seed.
        except: &["runtime/src/real", "runtime/src/sim", "front/", "node/", "index_rocksdb/"],
    },
    Ban {
        words: &["HashMap::new", "HashMap::with_capacity", "HashSet::new", "HashSet::with_capacity"],
        instead: "BTreeMap, or a hasher without random state: the order of this one differs from run to run",
        except: REAL,
    },
    Ban { words: &["mpsc::channel"], instead: "sync_channel: no queue without a bound", except: &[] },
    Ban { words: &["static mut", "lazy_static!", "LazyLock"], instead: "a value passed in: no globals", except: &[] },
    Ban {
        words: &[".unwrap()", "dbg!", "todo!", "unimplemented!"],
        instead: "expect(\"why this holds\")",
        except: &[],
    },
];

/// Refuses banned words in product code.
pub fn calls(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, scan) in tree.product().filter(|(path, _)| is_product_path(path)) {
        for ban in BANS.iter().filter(|ban| !ban.except.iter().any(|room| path.starts_with(room))) {
            for word in ban.words {
                let places = words(&scan.product, word);
                problems.extend(places.map(|at| {
                    format!("{path}:{}: {word} is banned here; use {}", line_of(&scan.product, at), ban.instead)
                }));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    #[test]
    fn each_banned_word_is_refused() {
        for word in BANS.iter().flat_map(|ban| ban.words) {
            let text = format!("fn f() {{ x{} {word}(1); }}\n", if word.starts_with('.') { "" } else { ";" });
            assert_eq!(calls(&tree(&[("store/src/a.rs", &text)])).len(), 1, "{word}");
        }
    }

    #[test]
    fn exempt_rooms_and_tests_pass() {
        let text = "use std::time::Instant;\nfn f() { std::thread::spawn(g); }\n";
        assert_eq!(calls(&tree(&[("runtime/src/real/clock.rs", text), ("store/tests/a.rs", text)])), [""; 0]);
        assert_eq!(calls(&tree(&[("sim/src/a.rs", text), ("store/src/a.rs", "// Instant\n")])), [""; 0]);
        assert_eq!(calls(&tree(&[("node/src/a.rs", "fn f() { g().unwrap(); }\n")])).len(), 1);
    }
}
