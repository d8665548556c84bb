//! Bricks that replicate each other: what a node needs to know of its cluster, a node's side of it, and a whole cluster on one machine
//! for whoever wants to try one.
//!
//! Promises: what a node needs lies in its own brick's directory; a brick that is one of a cluster's is never opened alone; who asks for
//! a cluster's state is told what its nodes say of themselves, and which of them say nothing. Absent by design: who leads, and what is
//! committed (`group`). Absent so far: changes of members.

mod badge;
mod config;
pub mod dev;
pub mod etcd;
pub mod forming;
mod member;
mod nodes;
pub mod state;

pub use badge::Badge;
pub use config::GROUPS;
pub use config::{Cluster, is_cluster};
pub use member::{Member, Node, refuse_alone};
pub use nodes::Nodes;
