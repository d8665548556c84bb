//! A brick in a simulated world: group commit, crashes, damage, checkpoints, space.

mod batches;
mod bitmaps;
mod checkpoints;
mod commit;
mod damage;
mod device;
mod devices;
mod drops;
mod grow;
mod heal;
mod leaving;
mod missing;
mod pending;
mod reread;
mod rig;
mod scrub;
#[cfg(feature = "seeded-bugs")]
mod seeded;
mod space;
mod summaries;
mod values;
mod votes;
