//! Messages of the protocol's library, and ours.

use crate::log::position;
use crate::message::{Body, Entry, Message, Number, Shadow, Stage};
use base::{Index, ReplicaId, Term};
use raft::eraftpb::{self, MessageType};

/// The word by which the library knows a candidate whom the leader asked to campaign.
const RELEASED: &[u8] = b"CampaignTransfer";

/// A message of the library's as one of ours. `number` is the number that an append gets, or that an answer repeats.
pub fn to_ours(message: &eraftpb::Message, number: Number) -> Body {
    let stage = match message.get_msg_type() {
        MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse => Stage::Ask,
        _ => Stage::Vote,
    };
    let commit = position(message.commit, message.commit_term);
    match message.get_msg_type() {
        MessageType::MsgAppend => Body::Append {
            number,
            previous: position(message.index, message.log_term),
            commit: commit.index,
            entries: message.entries.iter().map(entry_to_ours).collect(),
        },
        MessageType::MsgAppendResponse if message.reject => Body::Refused {
            number,
            index: Index(message.index),
            hint: position(message.reject_hint, message.log_term),
            commit: commit.index,
        },
        MessageType::MsgAppendResponse => Body::Appended { number, index: Index(message.index), commit: commit.index },
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => Body::Vote {
            stage,
            last: position(message.index, message.log_term),
            commit,
            released: message.context == RELEASED,
        },
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            Body::Voted { stage, granted: !message.reject, commit }
        }
        MessageType::MsgTimeoutNow => Body::Release,
        other => {
            unreachable!("{other:?} is never sent: nothing ticks, proposals are not passed on, there are no snapshots")
        }
    }
}

fn entry_to_ours(entry: &eraftpb::Entry) -> Entry {
    Entry { term: Term(entry.term), shadow: Shadow::of_bytes(&entry.data) }
}

/// A message of ours as the library knows it.
pub fn to_theirs(from: ReplicaId, to: ReplicaId, message: Message) -> eraftpb::Message {
    let mut theirs = eraftpb::Message::default();
    (theirs.from, theirs.to, theirs.term) = (from.0, to.0, message.term.0);
    match message.body {
        Body::Append { previous, commit, entries, .. } => {
            theirs.set_msg_type(MessageType::MsgAppend);
            (theirs.index, theirs.log_term, theirs.commit) = (previous.index.0, previous.term.0, commit.0);
            let indexes = previous.index.0 + 1..;
            let entries = entries.into_iter().zip(indexes).map(|(entry, index)| entry_to_theirs(entry, index));
            theirs.set_entries(entries.collect::<Vec<_>>().into());
        }
        Body::Appended { index, commit, .. } => {
            theirs.set_msg_type(MessageType::MsgAppendResponse);
            (theirs.index, theirs.commit) = (index.0, commit.0);
        }
        Body::Refused { index, hint, commit, .. } => {
            theirs.set_msg_type(MessageType::MsgAppendResponse);
            (theirs.reject, theirs.index, theirs.commit) = (true, index.0, commit.0);
            (theirs.reject_hint, theirs.log_term) = (hint.index.0, hint.term.0);
        }
        Body::Vote { stage, last, commit, released } => {
            theirs.set_msg_type(match stage {
                Stage::Ask => MessageType::MsgRequestPreVote,
                Stage::Vote => MessageType::MsgRequestVote,
            });
            (theirs.index, theirs.log_term) = (last.index.0, last.term.0);
            (theirs.commit, theirs.commit_term) = (commit.index.0, commit.term.0);
            if released {
                theirs.context = RELEASED.into();
            }
        }
        Body::Voted { stage, granted, commit } => {
            theirs.set_msg_type(match stage {
                Stage::Ask => MessageType::MsgRequestPreVoteResponse,
                Stage::Vote => MessageType::MsgRequestVoteResponse,
            });
            theirs.reject = !granted;
            (theirs.commit, theirs.commit_term) = (commit.index.0, commit.term.0);
        }
        Body::Release => theirs.set_msg_type(MessageType::MsgTimeoutNow),
    }
    theirs
}

fn entry_to_theirs(entry: Entry, index: u64) -> eraftpb::Entry {
    let mut theirs = eraftpb::Entry::default();
    (theirs.index, theirs.term) = (index, entry.term.0);
    if entry.shadow != Shadow::TERM {
        theirs.data = entry.shadow.to_bytes().to_vec().into();
    }
    theirs
}
