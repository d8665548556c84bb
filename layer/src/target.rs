//! The bottom of a stack: the groups of this process, or those of a server.

use base::{Ino, Op, Reply, Result};
use group::{Answer, Context, Groups};
use runtime::{Buf, Runtime};
use std::sync::Arc;
use wire::Client;

/// The owner of what a stack's operations are about.
#[derive(Clone)]
pub enum Target {
    /// The groups of this process.
    Local(Arc<Groups>),
    /// The groups of a server.
    Cluster(Arc<Client>),
}

impl From<Arc<Groups>> for Target {
    fn from(groups: Arc<Groups>) -> Target {
        Target::Local(groups)
    }
}

impl From<Arc<Client>> for Target {
    fn from(client: Arc<Client>) -> Target {
        Target::Cluster(client)
    }
}

impl Target {
    /// The world that the stack lives in.
    pub fn runtime(&self) -> &Runtime {
        match self {
            Target::Local(groups) => &groups.store().runtime,
            Target::Cluster(client) => client.runtime(),
        }
    }
    /// Performs an operation.
    pub async fn call(&self, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
        match self {
            Target::Local(groups) if groups.is_replicated() => {
                Box::pin(groups.call_replicated(context, op, data)).await
            }
            Target::Local(groups) => groups.call(context, op, data).await,
            // Operations of local mounts need not have room for it.
            Target::Cluster(client) => Box::pin(client.call(context, op, data)).await,
        }
    }
    /// The project of an inode; 0 if it has none, or is gone.
    pub async fn project(&self, context: &Context, ino: Ino) -> u32 {
        match self {
            Target::Local(groups) => groups.project(context, ino).await,
            Target::Cluster(client) => match Box::pin(client.call(context, Op::GetAttr { ino }, None)).await {
                Ok(Answer { reply: Reply::Attr(attr), .. }) => attr.inode.project,
                _ => 0,
            },
        }
    }
}
