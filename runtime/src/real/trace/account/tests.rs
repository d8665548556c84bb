use super::*;

const OWN: u32 = 7;

fn account(sampling: Sampling) -> Account {
    Account::new(OWN, 1000, sampling, sampling)
}

fn sent(unique: u64, opcode: u32) -> Fact {
    Fact::Sent { connection: 35, unique, opcode }
}

fn ended(unique: u64) -> Fact {
    Fact::Ended { connection: 35, unique }
}

fn io(sector: u64, sectors: u64, verb: Verb) -> Io {
    Io { device: 254 << 20, sector, sectors, verb }
}

fn issued(io: Io, pid: u32, by: &str) -> Fact {
    let mut name = [0; 16];
    name[..by.len()].copy_from_slice(by.as_bytes());
    Fact::Issued { io, pid, name }
}

fn unmatched(begun_before: u64, not_ended: u64, lost: u64) -> Unmatched {
    Unmatched { begun_before, not_ended, lost }
}

#[test]
fn requests_are_paired_by_connection_and_number() {
    let mut account = account(Sampling::All);
    // As two CPUs tell it, one after the other.
    for (at_ns, fact) in [(1500, ended(2)), (1900, ended(4)), (1100, sent(2, 15)), (1200, sent(4, 16))] {
        account.add(at_ns, fact);
    }
    account.add(1300, Fact::Sent { connection: 36, unique: 2, opcode: 15 });
    account.add(1301, Fact::Ended { connection: 36, unique: 2 });
    let (requests, _) = account.end(2000, [0, 0]);
    let told: Vec<_> = requests.opcodes.iter().map(|(code, times)| (*code, times.count(), times.sum_ns())).collect();
    assert_eq!(told, [(15, 2, 401), (16, 1, 700)]);
    assert_eq!((requests.unmatched, requests.unnumbered), (unmatched(0, 0, 0), 0));
}

#[test]
fn a_pair_counts_if_both_its_facts_lie_in_the_window() {
    let mut account = account(Sampling::All);
    let facts = [
        (999, sent(2, 1)),
        (1000, sent(4, 1)),
        (1001, ended(2)),
        (1999, ended(4)),
        (1500, sent(6, 1)),
        (1500, sent(8, 1)),
        (2000, ended(6)),
    ];
    facts.into_iter().for_each(|(at_ns, fact)| account.add(at_ns, fact));
    let (requests, _) = account.end(2000, [3, 0]);
    assert_eq!((requests.opcodes[&1].count(), requests.opcodes[&1].sum_ns()), (1, 999));
    assert_eq!(requests.unmatched, unmatched(1, 2, 3));
}

#[test]
fn what_is_not_settled_waits_for_older_facts() {
    for (settled_ns, expected) in [(1200, (2, unmatched(0, 0, 0))), (1201, (1, unmatched(1, 1, 0)))] {
        let mut account = account(Sampling::All);
        account.add(1200, ended(2));
        account.settle(settled_ns);
        account.add(1210, sent(4, 3));
        account.add(1150, sent(2, 3));
        account.settle(1211);
        account.add(1215, ended(4));
        let (requests, _) = account.end(1300, [0, 0]);
        assert_eq!((requests.opcodes[&3].count(), requests.unmatched), expected, "settled up to {settled_ns}");
    }
}

#[test]
fn requests_without_a_number_are_told_apart() {
    let mut account = account(Sampling::All);
    account.add(1100, sent(0, 15));
    account.add(1101, sent(0, 15));
    account.add(1200, ended(2));
    let (requests, _) = account.end(2000, [0, 0]);
    assert_eq!((requests.unnumbered, requests.unmatched), (2, unmatched(1, 0, 0)));
}

#[test]
fn devices_are_told_by_verb_and_length() {
    let mut account = account(Sampling::All);
    let all = [
        io(0, 8, Verb::Read),
        io(8, 9, Verb::Read),
        io(64, 32, Verb::Write),
        io(1024, 2048, Verb::Write),
        io(4096, 2049, Verb::Write),
        io(0, 0, Verb::Flush),
    ];
    for (at, io) in all.into_iter().enumerate() {
        account.add(1000 + at as u64, issued(io, OWN, "core"));
        account.add(1100 + 2 * at as u64, Fact::Completed { io });
    }
    let (_, devices) = account.end(2000, [0, 5]);
    let told: Vec<_> = devices.services.iter().map(|(class, service)| (class.1, class.2.bytes_max, service)).collect();
    let told: Vec<_> = told.iter().map(|(verb, longest, service)| (*verb, *longest, service.times.sum_ns())).collect();
    let expected = [
        (Verb::Read, Some(4 << 10), 100),
        (Verb::Read, Some(16 << 10), 101),
        (Verb::Write, None, 104),
        (Verb::Write, Some(16 << 10), 102),
        (Verb::Write, Some(1 << 20), 103),
        (Verb::Flush, Some(0), 105),
    ];
    assert_eq!(told, expected);
    assert_eq!(devices.unmatched, unmatched(0, 0, 5));
}

#[test]
fn a_place_is_used_again_and_its_first_end_may_be_missed() {
    let mut account = account(Sampling::All);
    let one = io(8, 8, Verb::Write);
    for (at_ns, fact) in [
        (1000, issued(one, OWN, "core")),
        (1010, Fact::Completed { io: one }),
        (1020, issued(one, OWN, "core")),
        (1030, issued(one, OWN, "core")),
        (1070, Fact::Completed { io: one }),
        (1080, Fact::Completed { io: one }),
    ] {
        account.add(at_ns, fact);
    }
    let (_, devices) = account.end(2000, [0, 0]);
    let service = devices.services.values().next().expect("one");
    assert_eq!((service.times.count(), service.times.sum_ns()), (2, 50));
    assert_eq!(devices.unmatched, unmatched(1, 1, 0));
}

#[test]
fn issuers_are_told_by_name_and_whose_they_are() {
    let mut account = account(Sampling::Sparse);
    let facts = [
        issued(io(0, 8, Verb::Read), OWN, "core"),
        issued(io(512, 2048, Verb::Write), OWN, "core"),
        issued(io(8192, 128, Verb::Read), 8, "core"),
        issued(io(9000, 256, Verb::Discard), 9, "fstrim"),
        issued(io(0, 0, Verb::Flush), 9, "fstrim"),
    ];
    facts.into_iter().for_each(|fact| account.add(1500, fact));
    let (_, devices) = account.end(2000, [0, 0]);
    let told: Vec<_> = devices.issuers.iter().map(|(by, what)| (by.own, by.name.as_str(), *what)).collect();
    let what = |count, read_bytes, written_bytes, discarded_bytes| Issued {
        count,
        read_bytes,
        written_bytes,
        discarded_bytes,
    };
    let expected = [
        (false, "core", what(64, 64 * 65536, 0, 0)),
        (false, "fstrim", what(2, 0, 0, 131_072)),
        (true, "core", what(65, 64 * 4096, 1 << 20, 0)),
    ];
    assert_eq!(told, expected, "what is sampled stands for 64");
}

#[test]
fn memory_stays_bounded() {
    let mut account = account(Sampling::All);
    for number in 0..OPEN_MAX as u64 + 10 {
        account.add(1000, sent(2 + 2 * number, 1));
        account.add(1000, issued(io(8 * number, 8, Verb::Read), 100, &format!("job{}", number % 100)));
    }
    let (requests, devices) = account.end(2000, [0, 0]);
    assert_eq!(requests.unmatched, unmatched(0, OPEN_MAX as u64, 10));
    assert_eq!(devices.unmatched, unmatched(0, OPEN_MAX as u64, 10));
    assert_eq!(devices.issuers.len(), ISSUERS_MAX + 1);
    let all: u64 = devices.issuers.values().map(|issued| issued.count).sum();
    assert_eq!(all, OPEN_MAX as u64 + 10, "nobody is left out");
}

#[test]
fn the_kernels_letters_are_understood() {
    let told = [
        ("R", Verb::Read),
        ("RA", Verb::Read),
        ("WS", Verb::Write),
        ("WFSM", Verb::Write),
        ("FWFS", Verb::Write),
        ("FF", Verb::Flush),
        ("F", Verb::Flush),
        ("FS", Verb::Flush),
        ("D", Verb::Discard),
        ("DE", Verb::Discard),
        ("N", Verb::Other),
        ("", Verb::Other),
    ];
    for (letters, verb) in told {
        assert_eq!(Verb::of(letters.as_bytes()), verb, "{letters}");
    }
}
