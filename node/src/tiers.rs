//! The tiers of a brick as the admin socket tells them: where reads were served from, and why what is where it is.

use crate::admin::protocol::{Ahead, Decided, Decision, Served, Tiers};
use base::limits::BLOCK_BYTES;
use group::Groups;
use store::promote::{Reason, Verdict};

/// The tiers now.
pub fn tiers(groups: &Groups) -> Tiers {
    let (store, ahead) = (groups.store(), groups.streamed());
    let now_ns = store.runtime.clock.now_ns();
    let (memory, copies) = (store.read_cache.figures(), store.promotion.figures());
    let segments = store.copies.segments(now_ns);
    let served = |tier: &str, asked_blocks: u64, found_blocks: u64| Served {
        tier: tier.to_string(),
        asked_blocks,
        found_blocks,
    };
    let decided = |(reason, blocks): &(Reason, u64)| Decided {
        verdict: verdict(reason.verdict()).to_string(),
        reason: reason.name().to_string(),
        blocks: *blocks,
    };
    let decision = |one: &store::promote::Decision| Decision {
        ago_ms: now_ns.saturating_sub(one.at_ns) / 1_000_000,
        verdict: verdict(one.reason.verdict()).to_string(),
        reason: one.reason.name().to_string(),
        segment: one.place.segment.0,
        block: one.place.block,
        blocks: one.blocks,
    };
    Tiers {
        served: vec![
            served("memory", memory.found + memory.missed, memory.found),
            served("copies on flash", copies.found + copies.missed, copies.found),
            served("disk", copies.missed, copies.missed),
        ],
        copied_bytes: copies.held * BLOCK_BYTES as u64,
        segments: segments.held,
        segments_max: segments.budget,
        map_entries: copies.entries,
        map_bytes: store.promotion.bytes(),
        ahead: Ahead {
            units: ahead.units,
            read_bytes: ahead.read_blocks * BLOCK_BYTES as u64,
            runs: ahead.runs,
            taken_bytes: ahead.taken_blocks * BLOCK_BYTES as u64,
            held_bytes: ahead.held_bytes,
            held_bytes_max: ahead.bytes_max,
        },
        decided: store.promotion.counts().iter().map(decided).collect(),
        decisions: store.promotion.decisions().iter().map(decision).collect(),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Admitted => "admitted",
        Verdict::Refused => "refused",
        Verdict::Evicted => "evicted",
    }
}
