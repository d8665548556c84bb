//! Tests of the table.

use super::*;

fn figures(values: &[f64]) -> Vec<Figure> {
    let one = |&value| Figure { value, p50_us: Some(1500.0), daemon_us: 7.0, machine_us: 120.0, ..Figure::default() };
    values.iter().map(one).collect()
}

fn report() -> Report {
    let row = rows::all().remove(0).rows.remove(0);
    assert_eq!(row.name, "random-read");
    let sides = [
        ("raw", vec![50_000.0, 60_000.0]),
        ("new", vec![45_000.0, 54_000.0]),
        ("old", vec![40_000.0, 27_000.0]),
        ("gluster-tuned", vec![8_000.0, 8_000.0]),
        ("gluster-default", vec![9_000.0, 9_000.0]),
    ];
    let sides = sides.into_iter().map(|(name, values)| (name.to_string(), figures(&values))).collect();
    let rows = vec![Measured { place: Place::Xfs, point: None, row, sides }];
    let builds = vec!["old".to_string(), "new".to_string()];
    Report { facts: vec![("kernel", "6.1".to_string())], builds, rounds: 2, seconds: 5, rows }
}

#[test]
fn the_table_tells_ratios_targets_and_the_better_peer() {
    let text = report().markdown();
    let line =
        |start: &str| text.lines().filter(|line| line.starts_with(start)).map(str::to_string).collect::<Vec<_>>();
    let lines = line("| 4 KiB random read");
    let [old, new, between] = &lines[..] else { panic!("{text}") };
    assert!(new.contains("| 0.90 (0.90..0.90) | 5.50 (5.00..6.00) |") && new.ends_with("| yes |"), "{new}");
    assert!(
        new.contains("| 49,500/s, p50 1,500; 7.0 of 120 |") && new.contains("| 55,000/s, p50 1,500; 120 |"),
        "{new}"
    );
    assert!(new.contains("9,000/s, p50 1,500; 7.0 of 120 (d) |"), "{new}");
    assert!(old.ends_with("| **no**: 0.62 of raw, 3.72 of GlusterFS |"), "{old}");
    assert!(between.ends_with("| 1.56 (1.12..2.00) |"), "{between}");
    assert!(text.contains("- kernel: 6.1\n"));
}

#[test]
fn json_holds_every_round() {
    let json = report().json();
    let row = &json["rows"][0];
    assert_eq!(row["sides"]["raw"][1]["value"], 60_000.0);
    assert_eq!((&row["judged"]["new"]["met"], &row["judged"]["old"]["met"]), (&json!(true), &json!(false)));
    assert_eq!((&row["peer"], &row["judged"]["old"]["of_raw"]["low"]), (&json!("gluster-default"), &json!(0.45)));
}

#[test]
fn sides_that_were_left_out_leave_targets_open() {
    let mut report = report();
    report.rows[0].sides.retain(|name, _| name == "new" || name == RAW);
    let text = report.markdown();
    assert!(
        text.contains("| - | 0.90 (0.90..0.90) | - |") && text.contains("| open: GlusterFS not measured |"),
        "{text}"
    );
    assert_eq!(report.json()["rows"][0]["judged"]["new"]["met"], Value::Null);
}

#[test]
fn rows_are_told_with_the_targets_of_one_copy_and_of_three() {
    let text = rows_told();
    let (one, three) = text.split_once("with --copies 3:").expect("both are told");
    assert!(one.contains("above raw") && one.contains("ext4") && one.contains("steady"), "{one}");
    assert!(!three.contains("above raw") && !three.contains("ext4") && !three.contains("streams"), "{three}");
    assert!(three.contains("target: 10 GlusterFS, CPU at most 45 us\n"), "{three}");
    assert!(three.contains("target: p50 at most 350 us\n"), "{three}");
}

#[test]
fn thousands_are_grouped() {
    assert_eq!([0.0, 999.4, 1000.0, 1_234_567.0].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(with_unit(0.125, Unit::PercentOfCore), "0.12%");
}

#[test]
fn idle_sides_have_no_ratio_and_the_peer_that_uses_less_is_the_better() {
    let mut report = report();
    let idle = rows::all().into_iter().flat_map(|task| task.rows).find(|row| row.name == "idle");
    let idle = idle.expect("there is such a row");
    let sides = [("new", 0.5), ("gluster-tuned", 0.0), ("gluster-default", 0.1)];
    report.rows[0].sides = sides.into_iter().map(|(name, value)| (name.to_string(), figures(&[value]))).collect();
    report.rows[0].row = idle;
    let text = report.markdown();
    assert!(text.contains("| - | 0.50% | 0.00% (t) | - | - | below 1% | yes |"), "{text}");
    assert_eq!(report.json()["rows"][0]["judged"]["new"]["of_peer"], Value::Null);
}
