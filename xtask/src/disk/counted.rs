//! The counters of a disk, as the text of a file and as a table.

use runtime::sim::spindle::Counters;
use serde_json::{Value, json};

/// The counters as JSON, on one line.
pub fn text(counters: &Counters) -> String {
    format!("{}\n", json(counters))
}

/// The counters by their names.
pub fn json(counters: &Counters) -> Value {
    json!({
        "reads": counters.reads,
        "writes": counters.writes,
        "read_bytes": counters.read_bytes,
        "written_bytes": counters.written_bytes,
        "buffered": counters.buffered,
        "seeks": counters.seeks,
        "turns_lost": counters.turns_lost,
        "busy_ns": counters.busy_ns,
        "longest_ns": counters.longest_ns,
    })
}

/// Reads the text.
pub fn read(text: &str) -> Option<Counters> {
    let value: Value = serde_json::from_str(text).ok()?;
    let number = |name: &str| value[name].as_u64();
    Some(Counters {
        reads: number("reads")?,
        writes: number("writes")?,
        read_bytes: number("read_bytes")?,
        written_bytes: number("written_bytes")?,
        buffered: number("buffered")?,
        seeks: number("seeks")?,
        turns_lost: number("turns_lost")?,
        busy_ns: number("busy_ns")?,
        longest_ns: number("longest_ns")?,
    })
}

/// A line of the table for each.
pub fn lines(counters: &Counters) -> Vec<String> {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let line = |name: &str, value: String| format!("{name:<14} {value:>14}");
    vec![
        line("reads", counters.reads.to_string()),
        line("writes", counters.writes.to_string()),
        line("bytes read", mib(counters.read_bytes)),
        line("bytes written", mib(counters.written_bytes)),
        line("from buffer", counters.buffered.to_string()),
        line("seeks", counters.seeks.to_string()),
        line("turns lost", counters.turns_lost.to_string()),
        line("busy", ms(counters.busy_ns)),
        line("longest", ms(counters.longest_ns)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_they_were_told() {
        let counters = Counters {
            reads: 1,
            writes: 2,
            read_bytes: 3,
            written_bytes: 4,
            buffered: 5,
            seeks: 6,
            turns_lost: 7,
            busy_ns: 8,
            longest_ns: u64::MAX,
        };
        assert_eq!(read(&text(&counters)), Some(counters));
        assert_eq!(read("{\"reads\": 1}"), None);
        assert_eq!(read(""), None);
    }
}
