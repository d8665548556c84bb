//! Tests of the binary, most of them on real mounts. One program has them all, because forty programs took minutes to be compiled and
//! linked. `run` gives each module a process of its own, one after the other: `cargo test -p node --test mounted -- kill::`.

mod daemon;

#[path = "daemon/asynchronous.rs"]
mod asynchronous;
#[path = "posix/calls.rs"]
mod calls;
#[path = "daemon/fsx.rs"]
mod fsx_runs;
#[path = "../../layer/tests/histories/mod.rs"]
mod histories;
#[path = "daemon/patterns.rs"]
mod patterns;
#[path = "daemon/space.rs"]
mod space;
#[path = "daemon/stress.rs"]
mod stressors;
#[path = "daemon/tools.rs"]
mod tools;
#[path = "daemon/tree.rs"]
mod tree;

mod ablations;
mod admin;
mod agents;
mod apart;
mod attributes;
mod bad_input;
mod behind;
mod beside;
mod cluster;
mod console;
mod device;
mod doctor;
mod doors;
mod etcd;
mod everything;
mod explain;
mod fio;
mod fstab;
mod fsx;
mod full;
mod handles;
mod host;
mod idmapped;
mod joining;
mod kill;
mod known;
mod layers;
mod limits;
mod machines;
mod many;
mod missing;
mod mixed;
mod mounts;
mod names;
mod network;
mod pjdfstest;
mod policies;
mod posix;
mod privileges;
mod programs;
mod record;
mod repair;
mod scrub;
mod shared;
mod sparse;
mod stop;
mod stress;
mod survive;
mod torture;
mod transport;
mod ways;
mod xattr;
