//! Frames and bodies as their users meet them: what is encoded is decoded, and what can't be is refused.

mod samples;

use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{At, Error, Ino, Kind, Op, Reply, Result, Sync};
use runtime::{Need, Slabs, Span, Stamp};
use wire::codec::hello::{ABOUT_BYTES_MAX, Join, Joined, SERVER_BYTES_MAX, VERSIONS, Versions};
use wire::codec::reply::{Failure, Stages, Told};
use wire::codec::{Body, Sums, op, reply};
use wire::{Answer, Context, FrameKind, Header, frame};

fn payload(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn asked(context: &Context, op: &Op, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    op::encode(&mut body, context, op, &Sums::of_op(op, payload));
    body
}

fn decoded(context: &Context, body: &[u8], payload: &[u8]) -> Result<op::Asked> {
    op::decode(&Header::of(context), body, payload, Span::start(Stamp(0)))
}

fn told(told: &Told) -> (Vec<u8>, Vec<u8>) {
    let mut body = Vec::new();
    let long = reply::encode(&mut body, told).expect("it fits");
    (body, long.unwrap_or_default())
}

fn with_payload(told: &Told) -> (Told, Vec<u8>) {
    let Ok(Reply::Data { length }) = told.result else { return (told.clone(), Vec::new()) };
    let payload = payload(length as usize);
    (Told { sums: Sums::of(4096, &payload), ..told.clone() }, payload)
}

#[test]
fn every_operation_reads_back_with_its_context() {
    for (uid, op) in (0..).zip(samples::ops()) {
        let context = samples::context(uid);
        let payload = if matches!(op, Op::Write { .. }) { payload(9000) } else { Vec::new() };
        let body = asked(&context, &op, &payload);
        let back = decoded(&context, &body, &payload).expect("it was encoded");
        assert_eq!(back.op, op);
        assert_eq!(asked(&back.context, &back.op, &payload), body, "{op:?}");
        let all = |of: &Context| format!("{of:?}").split("span").next().map(str::to_string);
        assert_eq!(all(&back.context), all(&context));
    }
}

#[test]
fn every_reply_and_every_error_reads_back() {
    for (told_, payload) in samples::told().iter().map(with_payload) {
        let (body, long) = told(&told_);
        assert!(long.is_empty());
        assert_eq!(reply::decode(&body, &payload).as_ref(), Ok(&told_));
    }
}

/// The tags that a decoder knows, `before` being what a body has before its tag: it says of others that they are unknown.
fn known(decode: impl Fn(u8) -> Result<()>) -> Vec<u8> {
    let is_known = |tag: &u8| !decode(*tag).is_err_and(|error| error.what.contains("not known"));
    (0..=u8::MAX).filter(is_known).collect()
}

/// A tag that encoders give and no sample has, or that no decoder knows, fails here; an operation without a tag does not compile.
#[test]
fn every_tag_has_a_sample() {
    let context = samples::context(1);
    let at = asked(&context, &Op::StatFs, &[]).len() - 1;
    let mut tags: Vec<u8> = samples::ops().iter().map(|op| asked(&context, op, &[])[at]).collect();
    tags.dedup();
    let with = |tag: u8| [&asked(&context, &Op::StatFs, &[])[..at], &[tag]].concat();
    assert_eq!(tags, known(|tag| decoded(&context, &with(tag), &[]).map(drop)));

    let done = Told { result: Ok(Reply::Done), ..samples::told().remove(0) };
    let at = told(&done).0.len() - 1;
    let of = |result: Reply| told(&Told { result: Ok(result), ..done.clone() }).0[at];
    let mut tags: Vec<u8> = samples::replies().into_iter().map(of).collect();
    tags.dedup();
    let with = |tag: u8| [&told(&done).0[..at], &[tag]].concat();
    let known = known(|tag| reply::decode(&with(tag), &[]).map(drop));
    // 0 is an error, 255 a reply that travels as payload.
    assert_eq!([&[0], &tags[..], &[255]].concat(), known);
}

#[test]
fn a_body_that_is_cut_or_goes_on_is_refused() {
    let context = samples::context(1);
    for op in samples::ops() {
        let body = asked(&context, &op, &[]);
        // Those with values of 64 KiB are cut here and there.
        for cut in (0..body.len()).step_by(1 + body.len() / 500) {
            assert!(decoded(&context, &body[..cut], &[]).is_err(), "{op:?} cut to {cut}");
        }
        let longer = [&body[..], &[0]].concat();
        assert_eq!(decoded(&context, &longer, &[]).map_err(|error| error.kind).err(), Some(Kind::Corrupt));
    }
    for (one, payload) in samples::told().iter().map(with_payload) {
        let (body, _) = told(&one);
        for cut in (0..body.len()).step_by(1 + body.len() / 500) {
            assert!(reply::decode(&body[..cut], &payload).is_err(), "{one:?} cut to {cut}");
        }
        assert!(reply::decode(&[&body[..], &[0]].concat(), &payload).is_err());
    }
}

#[test]
fn a_large_directory_travels_as_payload() {
    let one = Told { result: Ok(samples::entries(1024)), ..samples::told().remove(1) };
    let (body, long) = told(&one);
    assert!(body.len() < 600 && long.len() > 100 << 10, "{} {}", body.len(), long.len());
    assert_eq!(reply::decode(&body, &long), Ok(one.clone()));
    assert!(reply::decode(&body, &long[1..]).is_err() && reply::decode(&body, &[]).is_err());
    let mut changed = long.clone();
    changed[5000] ^= 1;
    assert!(reply::decode(&body, &changed).is_err());
    // A short one may not: each reply has one encoding.
    let short = Told { result: Ok(samples::entries(3)), ..one.clone() };
    let (mut body, _) = told(&short);
    let at = told(&Told { result: Ok(Reply::Done), ..one.clone() }).0.len() - 1;
    let payload = body.split_off(at);
    let (mut body, crcs) = (body[..at - 4].to_vec(), Sums::of(0, &payload));
    body.extend([0, 0, 1, 0].iter().chain(&crcs.crcs()[0].to_le_bytes()));
    body.push(255);
    assert_eq!(reply::decode(&body, &payload).map_err(|error| error.what), Err("a short reply travels as payload"));
    let many = Told { result: Ok(Reply::Volumes(vec![samples::volume(); 10_000])), ..one };
    let mut out = b"before".to_vec();
    assert_eq!(reply::encode(&mut out, &many).map_err(|error| error.kind), Err(Kind::TooLarge));
    assert_eq!(out, b"before");
}

#[test]
fn payloads_are_cut_where_blocks_of_the_file_meet() {
    let bytes = payload(2 * BLOCK_BYTES + 100);
    let crcs = |sums: &Sums| sums.crcs().len();
    assert_eq!(crcs(&Sums::of(0, &bytes)), 3);
    assert_eq!(crcs(&Sums::of(8192 + 4000, &bytes)), 4);
    assert_eq!(crcs(&Sums::of(4095, &bytes[..2])), 2);
    assert_eq!(crcs(&Sums::of(1, &payload(IO_BYTES_MAX))), 257);
    assert_eq!(Sums::of(7, &[]).whole(0), (0, &[][..]));
    let sums = Sums::of(100, &bytes);
    assert_eq!(Sums::known(4196, sums.crcs().iter().copied().collect()), sums);
    for (offset, length, before, blocks) in [
        (0, 8192, 0, 2),
        (0, 8191, 0, 1),
        (4096, 4096, 0, 1),
        (1, 8191, 4095, 1),
        (100, 300, 300, 0),
        (4000, 5000, 96, 1),
    ] {
        let sums = Sums::of(offset, &bytes[..length]);
        let whole = bytes[before..length].chunks_exact(BLOCK_BYTES).map(base::checksum::crc32c).collect::<Vec<_>>();
        assert_eq!(sums.whole(length), (before, &whole[..]), "{offset} {length}");
        assert_eq!(whole.len(), blocks);
    }
}

/// True if a write whose payload was changed on its way is refused, wherever the change is; so too one that lacks checksums.
fn changed_payloads_are_refused() -> bool {
    let context = samples::context(1);
    let write = Op::Write { ino: Ino(9), at: At::Offset(100), sync: Sync::Data, kill_privileges: false };
    let whole = payload(10_000);
    let body = asked(&context, &write, &whole);
    assert!(decoded(&context, &body, &whole).is_ok());
    [0, 3995, 3996, 8091, 8092, 9999].into_iter().all(|at| {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        decoded(&context, &body, &changed).is_err_and(|error| error.kind == Kind::Corrupt)
    })
}

#[test]
fn a_payload_that_was_changed_on_its_way_is_refused() {
    assert!(changed_payloads_are_refused());
    let context = samples::context(1);
    let write = Op::Write { ino: Ino(9), at: At::End, sync: Sync::Data, kill_privileges: false };
    let whole = payload(10_000);
    let body = asked(&context, &write, &whole);
    for length in [0, 1, 4096, 8192, 12_289] {
        assert!(decoded(&context, &body, &payload(length)).is_err(), "{length} bytes");
    }
    assert!(decoded(&context, &asked(&context, &Op::StatFs, &[]), &whole).is_err(), "an operation without payload");
    let mut bare = Vec::new();
    op::encode(&mut bare, &context, &write, &Sums::default());
    assert!(decoded(&context, &bare, &whole).is_err(), "a payload without checksums");
}

#[test]
fn an_error_tells_its_kind_and_a_text_of_bounded_length() {
    let error = Error::new(Kind::Quota, "it is full").with("é".repeat(2000));
    let failure = Failure::from(&error);
    assert!(failure.text.starts_with("it is full: é") && failure.text.len() <= 1024);
    let back = Error::from(failure.clone());
    assert!(back.kind == Kind::Quota && back.to_string().contains("it is full: é"));
}

#[test]
fn every_body_reads_back_and_none_may_be_cut_or_go_on() {
    let bodies = samples::bodies();
    for kind in FrameKind::ALL {
        let Some(again) = samples::codec(kind) else { continue };
        let mut of_kind = bodies.iter().filter(|(of, _)| *of == kind).map(|(_, body)| body).peekable();
        assert!(of_kind.peek().is_some(), "{kind:?} has no sample");
        for body in of_kind {
            assert_eq!(again(body).as_ref(), Ok(body), "{kind:?}");
            // Without its last field a body may be a whole one, but never another one.
            let is_whole = |cut: &usize| again(&body[..*cut]).is_ok();
            let whole: Vec<&[u8]> = (0..body.len()).filter(is_whole).map(|cut| &body[..cut]).collect();
            let has_last = matches!(kind, FrameKind::Join | FrameKind::Joined);
            assert!(whole.is_empty() || has_last && whole.len() == 1, "{kind:?} cut");
            assert!(whole.iter().all(|shorter| bodies.iter().any(|(of, body)| *of == kind && body == shorter)));
            assert!(again(&[&body[..], &[0]].concat()).is_err(), "{kind:?} goes on");
        }
    }
}

#[test]
fn the_highest_common_version_is_spoken_or_both_ranges_are_told() {
    let of = |lowest, highest| Versions { lowest, highest };
    let common = |server: Versions, client| server.common(client).map_err(|refused| refused.text.to_string());
    assert_eq!(common(of(1, 3), of(2, 5)), Ok(3));
    assert_eq!(common(of(2, 5), of(1, 3)), Ok(3));
    assert_eq!(common(of(1, 3), of(3, 3)), Ok(3));
    let text = common(of(1, 2), of(3, 4)).expect_err("they have none in common");
    assert!(text.contains("1 to 2") && text.contains("3 to 4") && text.contains("upgrade the server"), "{text}");
    assert!(common(of(4, 4), of(1, 3)).is_err_and(|text| text.contains("upgrade the client")));
    assert_eq!(VERSIONS.common(VERSIONS).ok(), Some(VERSIONS.highest));
}

#[test]
fn a_secret_is_not_in_a_debug_line() {
    let join = Join { secret: [199; 32].into(), name: "c1".into(), request: [1].into(), server: [199; 9].into() };
    let joined = Joined { chain: vec![[1].into()], about: [199; 9].into() };
    assert!(!format!("{join:?}{joined:?}").contains("199"));
}

#[test]
fn the_last_field_of_a_join_is_left_out_for_clients_and_keeps_to_its_bound() {
    let join =
        |server: &[u8]| Join { secret: [3; 2].into(), name: "c1".into(), request: [1].into(), server: server.into() };
    let joined = |about: &[u8]| Joined { chain: vec![[7].into()], about: about.into() };
    fn encoded<B: Body>(body: &B) -> Vec<u8> {
        let mut out = Vec::new();
        body.encode(&mut out);
        out
    }
    // The bytes of before there were servers that join.
    let (client, chain) = (b"\x02\0\0\0\x03\x03\x02\0\0\0c1\x01\0\0\0\x01", b"\x01\0\0\0\x01\0\0\0\x07");
    assert_eq!((&encoded(&join(&[]))[..], &encoded(&joined(&[]))[..]), (&client[..], &chain[..]));
    assert_eq!((Join::decode(client), Joined::decode(chain)), (Ok(join(&[])), Ok(joined(&[]))));
    let with = |bytes: &[u8], length: usize| [bytes, &(length as u32).to_le_bytes(), &vec![9; length]].concat();
    for (length, fits_join, fits_joined) in [
        (0, false, false),
        (1, true, true),
        (SERVER_BYTES_MAX, true, true),
        (SERVER_BYTES_MAX + 1, false, true),
        (ABOUT_BYTES_MAX, false, true),
        (ABOUT_BYTES_MAX + 1, false, false),
    ] {
        let (of_server, state) = (with(client, length), with(chain, length));
        let (read, told) = (Join::decode(&of_server), Joined::decode(&state));
        assert_eq!((read.is_ok(), told.is_ok()), (fits_join, fits_joined), "{length} bytes");
        assert!(read.is_ok_and(|join| encoded(&join) == of_server) == fits_join, "{length} bytes");
        assert!(told.is_ok_and(|joined| encoded(&joined) == state) == fits_joined, "{length} bytes");
    }
    let longest = joined(&[9; ABOUT_BYTES_MAX]);
    let mut frame = Vec::new();
    longest.frame(&mut frame, Header::new(FrameKind::Joined));
    assert!(frame::check(&frame).is_ok(), "the longest one fits into a frame");
}

fn sealed(header: Header, body: &[u8], payload: usize) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, header, payload, |out| out.extend_from_slice(body));
    out
}

#[test]
fn a_frame_reads_back_and_tells_its_lengths_first() {
    for kind in FrameKind::ALL {
        let full = Header {
            deadline_ms: Some(30_000),
            trace: 5,
            membership: u64::MAX,
            group: base::GroupId(7),
            ..Header::of(&samples::context(1))
        };
        for header in [Header::new(kind), Header { kind, ..full }] {
            let bytes = sealed(header, b"body", 8192);
            let peeked = Header::peek(bytes.first_chunk().expect("64 bytes")).expect("a header");
            assert_eq!(peeked, Header { body_bytes: 4, payload_bytes: 8192, ..header });
            assert_eq!(peeked.frame_bytes(), bytes.len() + 8192);
            assert_eq!(frame::check(&bytes), Ok((peeked, &b"body"[..])));
        }
    }
    assert!((0..64).all(|cut| frame::check(&sealed(Header::new(FrameKind::Op), &[], 0)[..cut]).is_err()));
}

#[test]
fn an_answer_comes_back_as_it_was_given() {
    let context = samples::context(1);
    let op = Op::Read { ino: Ino(9), offset: 100, length: 9000 };
    let mut out = b"before".to_vec();
    let deadline_ms = Some(5);
    op::frame(&mut out, Header { deadline_ms, ..Header::new(FrameKind::Op) }, (&context, &op), &Sums::default(), 0);
    let (asked_for, body) = frame::check(&out[6..]).expect("it is whole");
    assert_eq!(asked_for, Header { body_bytes: body.len() as u32, deadline_ms, ..Header::of(&context) });
    assert_eq!(op::decode(&asked_for, body, &[], Span::start(Stamp(0))).expect("it was encoded").op, op);

    let slabs = Slabs::new(1, 4 << 20);
    let mut data = slabs.take(0, 9000, Need::Starting).expect("within the bound");
    data.copy_from_slice(&payload(9000));
    let position = samples::told()[1].position;
    let answer = Answer { reply: Reply::Data { length: 9000 }, data: Some(data.share().slice(0..9000)), position };
    let told = Told::of(&op, &Ok(answer.clone()), Stages::default());
    let mut out = Vec::new();
    assert_eq!(reply::frame(&mut out, asked_for, &told, 9000), None);
    let (header, body) = frame::check(&out).expect("it is whole");
    assert_eq!((header.kind, header.request, header.payload_bytes), (FrameKind::Reply, context.request, 9000));
    let back = reply::decode(body, &payload(9000)).expect("it was encoded").answer(answer.data).expect("no error");
    assert_eq!((back.reply, back.position), (answer.reply, position));
    assert!(back.data.is_some_and(|data| *data == payload(9000)[..]));

    let error = Err(Error::new(Kind::Stale, "gone"));
    let mut out = Vec::new();
    reply::frame(&mut out, asked_for, &Told::of(&op, &error, Stages::default()), 0);
    let told = reply::decode(frame::check(&out).expect("it is whole").1, &[]).expect("it was encoded");
    assert!(told.answer(None).is_err_and(|error| error.kind == Kind::Stale));

    // A list that no frame carries is an error for whoever asked.
    let many = Told { result: Ok(Reply::Volumes(vec![samples::volume(); 10_000])), ..samples::told().remove(0) };
    let mut out = Vec::new();
    assert_eq!(reply::frame(&mut out, asked_for, &many, 0), None);
    let (header, body) = frame::check(&out).expect("it is whole");
    let told = reply::decode(body, &[]).expect("it was encoded");
    assert!(header.payload_bytes == 0 && told.result.is_err_and(|failure| failure.kind == Kind::TooLarge));
    // One that is only too long for a body is the payload.
    let large = Told { result: Ok(samples::entries(1024)), ..samples::told().remove(0) };
    let mut out = Vec::new();
    let long = reply::frame(&mut out, asked_for, &large, 0).expect("it is long");
    let (header, body) = frame::check(&out).expect("it is whole");
    assert_eq!((header.payload_bytes as usize, reply::decode(body, &long)), (long.len(), Ok(large)));
}

#[test]
fn lengths_out_of_bounds_are_refused_before_anything_else_comes() {
    let with = |at: usize, field: [u8; 4]| {
        let mut bytes = sealed(Header::new(FrameKind::Op), &[], 0);
        bytes[at..at + 4].copy_from_slice(&field);
        Header::peek(bytes.first_chunk().expect("64 bytes")).map_err(|error| error.kind)
    };
    let length = |at, length: usize| with(at, (length as u32).to_le_bytes()).is_ok();
    assert!(length(16, frame::BODY_BYTES_MAX) && !length(16, frame::BODY_BYTES_MAX + 1) && !length(16, usize::MAX));
    assert!(
        length(20, frame::PAYLOAD_BYTES_MAX) && !length(20, frame::PAYLOAD_BYTES_MAX + 1) && !length(20, usize::MAX)
    );
    assert_eq!(with(0, *b"SIW\x02").err(), Some(Kind::Newer));
    for (at, field) in [
        (0, *b"HTTP"),
        (8, [0, 0, 0, 0]),
        (8, [99, 0, 0, 0]),
        (8, [8, 0, 1, 0]),
        (12, [65, 0, 0, 0]),
        (12, [64, 0, 1, 0]),
    ] {
        assert_eq!(with(at, field).err(), Some(Kind::Corrupt), "{at}");
    }
}

/// True if a frame is refused whichever of its bits was changed on its way.
fn changed_frames_are_refused() -> bool {
    let bytes = sealed(Header::of(&samples::context(1)), b"a body", 4096);
    assert!(frame::check(&bytes).is_ok());
    (0..8 * bytes.len()).all(|bit| {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        frame::check(&changed).is_err()
    })
}

#[test]
fn a_frame_that_was_changed_on_its_way_is_refused() {
    assert!(changed_frames_are_refused());
}

/// Prints the cost of a write of 4 KiB and of its reply at both ends, checksums of the payload included.
/// `cargo test --release -p wire --test codec -- --ignored --nocapture`
#[test]
#[ignore = "measures, and says so by printing"]
#[allow(clippy::disallowed_methods)]
fn cost_of_a_request() {
    let (context, payload) = (samples::context(1), payload(4096));
    let write = Op::Write { ino: Ino(9), at: At::Offset(8192), sync: Sync::Written, kill_privileges: false };
    let done = Told { result: Ok(Reply::Wrote { offset: 8192, length: 4096 }), ..samples::told().remove(1) };
    let mut out = Vec::new();
    let rounds = 1_000_000;
    let mut print = |what: &str, call: &mut dyn FnMut(&mut Vec<u8>)| {
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            out.clear();
            call(&mut out);
        }
        println!("{what}: {} ns, {} bytes", start.elapsed().as_nanos() / rounds, out.len());
    };
    print("sums", &mut |_| assert_eq!(std::hint::black_box(Sums::of_op(&write, &payload)).crcs().len(), 1));
    let sums = Sums::of_op(&write, &payload);
    let ask = |out: &mut Vec<u8>| op::frame(out, Header::new(FrameKind::Op), (&context, &write), &sums, payload.len());
    print("a request is encoded", &mut |out| ask(out));
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    ask(&mut request);
    print("a request is decoded", &mut |_| {
        let (header, body) = frame::check(&request).expect("it is whole");
        drop(std::hint::black_box(op::decode(&header, body, &payload, Span::start(Stamp(0)))));
    });
    print("a reply is encoded", &mut |out| drop(reply::frame(out, Header::of(&context), &done, 0)));
    reply::frame(&mut reply, Header::of(&context), &done, 0);
    print("a reply is decoded", &mut |_| {
        let (_, body) = frame::check(&reply).expect("it is whole");
        drop(std::hint::black_box(reply::decode(body, &[])));
    });
}

#[cfg(feature = "seeded-bugs")]
mod seeded {
    use super::*;
    use base::seeded::{Bug, fails};

    #[test]
    fn a_frame_whose_checksum_nobody_looks_at() {
        assert!(fails(|| assert!(changed_frames_are_refused()), Bug::FrameCrcUnchecked));
    }

    #[test]
    fn a_payload_whose_checksums_nobody_looks_at() {
        assert!(fails(|| assert!(changed_payloads_are_refused()), Bug::PayloadCrcUnchecked));
    }
}
