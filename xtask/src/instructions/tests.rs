use super::measure::{instructions, per_operation, without_outer_calls};
use super::ratchet::{Cost, Stored, problems, updated};
use super::table;

fn stored(costs: &[(&str, Cost)]) -> Stored {
    let costs = costs.iter().map(|(name, cost)| (name.to_string(), *cost)).collect();
    Stored { tools: "rustc 1, valgrind 2".to_string(), costs }
}

/// The message about a change of one operation.
fn said(before: Cost, now: Cost) -> Vec<String> {
    problems(&stored(&[("read", before)]), &stored(&[("read", now)]))
}

#[test]
fn three_percent_more_instructions_pass_and_more_do_not() {
    assert_eq!(said([1000, 0, 0], [1030, 0, 0]), [""; 0]);
    let more = "read: 1000 instructions were stored, 1031 it takes: at most 1030";
    assert_eq!(said([1000, 0, 0], [1031, 0, 0]), [more]);
}

#[test]
fn each_allocation_more_is_refused() {
    assert_eq!(said([1000, 0, 0], [1000, 6, 100]), [""; 0], "a table that grew once");
    let more = "read: 0.06 allocations were stored, 1.06 it takes: at most 0.16";
    assert_eq!(said([1000, 6, 0], [1000, 106, 64]), [more]);
    assert_eq!(said([1000, 1650, 4600], [1000, 1650, 4900]).len(), 1, "larger ones");
}

#[test]
fn what_has_shrunk_is_to_be_kept_so() {
    assert_eq!(said([1000, 100, 1000], [970, 95, 900]), [""; 0]);
    let all = said([1000, 100, 1000], [900, 0, 0]);
    assert!(all.len() == 3 && all.iter().all(|problem| problem.ends_with("it has shrunk; keep it so")), "{all:?}");
}

#[test]
fn operations_that_are_on_one_side_only_are_told() {
    let (one, other) = (stored(&[("read", [1, 2, 3])]), stored(&[("write", [1, 2, 3])]));
    assert_eq!(problems(&one, &other), ["write: nothing is stored of it", "read: stored, and no operation any more"]);
    assert_eq!(updated(&one, &other), other);
}

#[test]
fn instructions_of_other_tools_are_not_compared_but_allocations_are() {
    let mut now = stored(&[("read", [2000, 100, 64])]);
    now.tools = "rustc 2, valgrind 2".to_string();
    let before = stored(&[("read", [1000, 0, 0])]);
    assert_eq!(problems(&before, &now), ["read: 0.00 allocations were stored, 1.00 it takes: at most 0.10"]);
    assert_eq!(updated(&before, &now).costs, [("read".to_string(), [2000, 100, 0])]);
}

#[test]
fn small_steps_do_not_move_what_is_stored() {
    let before = stored(&[("read", [1000, 10, 64]), ("write", [1000, 10, 64])]);
    let now = stored(&[("read", [1020, 12, 70]), ("write", [2000, 12, 70])]);
    assert_eq!(updated(&before, &now), stored(&[("read", [1000, 10, 64]), ("write", [2000, 10, 64])]));
}

#[test]
fn the_list_is_read_as_it_was_written() {
    let list = stored(&[("read", [8022, 0, 0]), ("create", [59_000, 1651, 4625])]);
    assert_eq!(Stored::parse(&list.text()), Ok(list.clone()));
    assert!(list.text().ends_with("8022 0.00 0 read\n59000 16.51 4625 create\n"), "{}", list.text());
    assert!(Stored::parse("8022 0.00 read\n").is_err() && Stored::parse("8022 0.00 0 read more\n").is_err());
}

#[test]
fn the_table_has_a_line_for_each_operation() {
    let text = table(&stored(&[("read", [1000, 0, 0])]), &stored(&[("read", [1100, 6, 0]), ("write", [1, 2, 3])]));
    let lines: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["read", "1100", "1000", "+10.0%", "0.06", "0.00", "-", "0", "0", "-"]);
    assert_eq!(lines[1], ["write", "1", "-", "-", "0.02", "-", "-", "3", "-", "-"]);
}

#[test]
fn a_part_of_callgrind_is_read() {
    let part =
        "part: 2\nsummary: 5500\n\nfn=(1) main\ncfn=(2) run\ncalls=0 152\n0 5500\n\nfn=(2)\n10 5500\ntotals: 5500\n";
    assert_eq!(instructions(part), Some(5500));
    let kept = "part: 2\nsummary: 5500\n\nfn=(1) main\ncfn=(2) run\n\nfn=(2)\n10 5500\ntotals: 5500\n";
    assert_eq!(without_outer_calls(part), kept);
    assert_eq!(per_operation([5500, 59, 70_528], 1000), [6, 6, 71]);
}
