//! `sinter tiers`: where a hybrid brick's reads are served from, and what was decided about copies on flash.

use super::{print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Ahead, Answer, Request, Tiers};
use crate::cli::Shown;
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, bytes, count, duration};
use std::fmt::Write;

/// Decisions that a person is shown; `--json` has all that are kept.
const DECISIONS_SHOWN: usize = 10;

/// `sinter tiers`.
pub fn run(options: &Shown) -> Result<Exit, Failure> {
    let Answer::Tiers(tiers) = Client::need(&options.data)?.ask(&Request::Tiers)? else { return Err(unexpected()) };
    match options.json {
        true => print_json(&tiers)?,
        false => print(&text(&tiers))?,
    }
    Ok(Exit::Done)
}

fn text(tiers: &Tiers) -> String {
    let right = Align::Right;
    let mut served = Table::new(&[("tier", Align::Left), ("asked for", right), ("served", right), ("share", right)]);
    for one in &tiers.served {
        let share = one.found_blocks as f64 * 100.0 / one.asked_blocks.max(1) as f64;
        let bytes = [one.asked_blocks, one.found_blocks].map(|blocks| bytes(blocks * 4096));
        let [asked, found] = bytes;
        served.row(vec![one.tier.clone(), asked, found, format!("{share:.1}%")]);
    }
    let mut text = served.render();
    let Tiers { copied_bytes, segments, segments_max, map_entries, map_bytes, .. } = tiers;
    let (copied, map) = (bytes(*copied_bytes), bytes(*map_bytes));
    writeln!(text, "\ncopies: {copied} in {segments} segments of at most {segments_max} now")
        .expect("a string takes all");
    writeln!(text, "their map: {} entries, in at most {map} of memory\n", count(*map_entries)).expect("the same");
    let Ahead { units, read_bytes, runs, taken_bytes, held_bytes, held_bytes_max } = tiers.ahead;
    let per_mib = runs as f64 / (read_bytes.max(1) as f64 / f64::from(1 << 20));
    let [read, taken, held, most] = [read_bytes, taken_bytes, held_bytes, held_bytes_max].map(bytes);
    writeln!(
        text,
        "read ahead from disks: {read} in {} units, {per_mib:.2} seeks per MiB; {taken} of it were used",
        count(units)
    )
    .expect("the same");
    writeln!(text, "memory of what is read ahead: {held} of at most {most}\n").expect("the same");
    let mut decided = Table::new(&[("decision", Align::Left), ("reason", Align::Left), ("blocks", right)]);
    for one in tiers.decided.iter().filter(|one| one.blocks > 0) {
        decided.row(vec![one.verdict.clone(), one.reason.clone(), count(one.blocks)]);
    }
    text.push_str(&decided.render());
    let shown = tiers.decisions.len().min(DECISIONS_SHOWN);
    if shown > 0 {
        let heads = [("ago", right), ("decision", Align::Left), ("reason", Align::Left)];
        let mut last = Table::new(&[&heads[..], &[("segment", right), ("block", right), ("blocks", right)]].concat());
        for one in &tiers.decisions[tiers.decisions.len() - shown..] {
            let ago = duration(one.ago_ms * 1_000_000);
            let place = [one.segment, u32::from(one.block), one.blocks].map(|number| number.to_string());
            last.row([&[ago, one.verdict.clone(), one.reason.clone()][..], &place].concat());
        }
        text.push('\n');
        text.push_str(&last.render());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::protocol::{Decided, Decision, Served};

    #[test]
    fn it_shows_what_was_served_from_where_and_why() {
        let words = |verdict: &str, reason: &str| (verdict.to_string(), reason.to_string());
        let decision = |number: u32| {
            let (verdict, reason) = words("admitted", "read again");
            Decision { ago_ms: 1500, verdict, reason, segment: 7, block: 9, blocks: number }
        };
        let decided = |(verdict, reason), blocks| Decided { verdict, reason, blocks };
        let tiers = Tiers {
            served: vec![Served { tier: "copies on flash".to_string(), asked_blocks: 1024, found_blocks: 256 }],
            copied_bytes: 5 << 20,
            segments: 2,
            segments_max: 3,
            map_entries: 12,
            map_bytes: 1 << 20,
            ahead: Ahead { units: 4, read_bytes: 8 << 20, runs: 20, taken_bytes: 4 << 20, ..Ahead::default() },
            decided: vec![decided(words("refused", "stream"), 5), decided(words("evicted", "bad"), 0)],
            decisions: (100..120).map(decision).collect(),
        };
        let text = text(&tiers);
        assert!(text.contains("8 MiB in 4 units, 2.50 seeks per MiB; 4 MiB of it were used"), "{text}");
        assert!(text.contains("25.0%") && text.contains("2 segments of at most 3 now"), "{text}");
        assert!(
            text.contains("refused   stream") && !text.contains("evicted"),
            "what never happened is left out: {text}"
        );
        assert!(text.contains(" 119\n") && text.contains(" 110\n") && !text.contains(" 109\n"), "the last ten: {text}");
    }
}
