//! The rights of sessions, against the groups of a brick in a simulated world.

use super::*;
use crate::Served;
use crate::tests::{context_on, groups};
use base::{Ino, Limits, Name, SessionId, SetHow, SetTime, Time, Volume};
use group::Groups;
use runtime::sim::World;
use wire::codec::hello::{Hello, Reason, VERSIONS};
use wire::codec::session::Held;
use wire::server::{Admission, Service};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// A gate that knows a client by the first byte of its certificate.
struct Known;

impl Gate for Known {
    fn recognise(&self, certificate: &[u8]) -> Result<Recognised, Refused> {
        let right = |volume, read_only, squash_root| Right { volume: VolumeId(volume), read_only, squash_root };
        match certificate {
            [1] => {
                Ok(Recognised { name: name("c1"), rights: Some(vec![right(1, false, false), right(2, true, true)]) })
            }
            [2] => Ok(Recognised { name: name("c2"), rights: Some(vec![right(1, true, false)]) }),
            _ => Err(Refused { reason: Reason::Revoked, text: "this client was revoked".into() }),
        }
    }
    fn join(&self, _: &Join, _: Option<&[u8]>) -> Result<Joined, Refused> {
        Ok(Joined { chain: Vec::new(), about: [].into() })
    }
}

async fn volume(groups: &Groups, text: &str) -> Volume {
    let create = Op::VolumeCreate { name: name(text), size_bytes: None };
    let context = Context::own(VolumeId(0), runtime::Span::start(runtime::Stamp(0)));
    match groups.call(&context, create, None).await.expect("room").reply {
        Reply::Volume(volume) => volume,
        other => panic!("a volume, not {other:?}"),
    }
}

fn served(groups: &Arc<Groups>) -> Served {
    let stacks = groups.clone();
    let stack_of = move |volume: &Volume| Arc::new(Stack::new(stacks.clone(), &[], &volume.limits));
    Served::new(groups.clone(), "store", [7; 16], stack_of).behind(Arc::new(Known))
}

fn hello(volume: &str, cluster: Option<[u8; 16]>) -> Hello {
    let (versions, who, volume) = (VERSIONS, "somebody".into(), Some(name(volume)));
    Hello { versions, features: 0, cluster, who, boot: 1, volume, read_only: false, begins: true }
}

#[test]
fn a_client_gets_what_its_certificate_gives_it_and_nothing_that_it_says() {
    let mut world = World::new(5);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        for volume_name in ["one", "two", "three"] {
            volume(&groups, volume_name).await;
        }
        let served = served(&groups);
        let admit = async |session, certificate: &[u8], hello: Hello| {
            let client = served.recognise(Some(certificate), &hello).await.map_err(|refused| refused.reason)?;
            let admission = served.admit(SessionId(session), &hello, client).await.map_err(|refused| refused.reason)?;
            let Admission::In(admitted) = admission else { panic!("nobody is in its way") };
            Ok((admitted.welcome.read_only, admitted.welcome.squash_root))
        };
        assert_eq!(served.recognise(None, &hello("one", None)).await.map_err(|it| it.reason), Err(Reason::Stranger));
        assert_eq!(admit(1, &[3], hello("one", None)).await, Err(Reason::Revoked));
        assert_eq!(admit(1, &[1], hello("three", None)).await, Err(Reason::Rights));
        assert_eq!(admit(1, &[1], hello("four", None)).await, Err(Reason::Volume));
        assert_eq!(admit(1, &[1], hello("one", Some([8; 16]))).await, Err(Reason::Cluster));
        assert_eq!(admit(1, &[1], hello("one", Some([7; 16]))).await, Ok((false, false)));
        assert_eq!(admit(2, &[1], hello("two", None)).await, Ok((true, true)));
        // The session is c1's, whoever else knows its number.
        assert_eq!(admit(1, &[2], hello("one", None)).await, Err(Reason::Rights));
        let held = [Held { ino: Ino(2), opens: u64::MAX, known: 1 }];
        let refused = served.reclaim(SessionId(1), (&held, &[]), true, true).await;
        assert_eq!(refused.map_err(|error| error.kind), Err(Kind::Invalid));
        groups.close().await.expect("a healthy brick closes");
    });
}

#[test]
fn sessions_do_what_their_rights_allow() {
    let mut world = World::new(6);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        let (one, other) = (volume(&groups, "one").await, volume(&groups, "other").await);
        let stack = Arc::new(Stack::new(groups.clone(), &[], &Limits::NONE));
        let entry = |read_only, squash_root| Entry { stack: stack.clone(), read_only, squash_root };
        let mut request = 100;
        let mut call = async |entry: &Entry, volume: &Volume, uid: u32, op: Op| {
            request += 1;
            let context = Context { uid, gid: uid, ..context_on(volume.id, request) };
            entry.call(&context, Call { op, data: None }).await.map(|answer| answer.reply).map_err(|error| error.kind)
        };
        let (all, reader, squashed) = (entry(false, false), entry(true, false), entry(false, true));
        let create = |text: &str, parent: Ino| Op::Create { parent, name: name(text), mode: 0o644, exclusive: true };
        let ino = |reply| match reply {
            Ok(Reply::Attr(attr)) => attr.ino,
            other => panic!("attributes, not {other:?}"),
        };
        let set = |ino, set| Op::SetAttr { ino, set: Box::new(set) };
        let roots = ino(call(&all, &one, 0, create("roots", one.root)).await);
        let foreign = ino(call(&all, &other, 0, create("foreign", other.root)).await);

        // The catalogue is nobody's but the operator's.
        for op in [
            Op::VolumeList,
            Op::VolumeCreate { name: name("new"), size_bytes: None },
            Op::VolumeDelete { name: name("other") },
            Op::VolumeRename { name: name("other"), new_name: name("mine") },
            Op::VolumeResize { name: name("one"), size_bytes: None },
            Op::VolumeLayers { name: name("one"), layers: Box::default() },
            Op::VolumePolicy { name: name("one"), policy: base::TierPolicy::WriteBack },
            Op::VolumeLimits { name: name("one"), tree: None, changed: Box::default() },
        ] {
            assert_eq!(call(&all, &one, 0, op).await, Err(Kind::Permission));
        }

        // Numbers of another volume's inodes, and of groups that the brick does not have, lead nowhere.
        for ino in [foreign, Ino::new(7, base::GroupId(999))] {
            for op in [
                Op::GetAttr { ino },
                Op::Open { ino, truncate: true },
                Op::Read { ino, offset: 0, length: 1 },
                set(ino, SetAttr { mode: Some(0o777), ..SetAttr::default() }),
                create("there", ino),
                Op::Link { ino, new_parent: one.root, new_name: name("stolen") },
                Op::ReadDir { ino, cookie: 0, count: 9, plus: true },
            ] {
                let answer = call(&all, &one, 0, op.clone()).await;
                assert!(matches!(answer, Err(Kind::Stale | Kind::NotFound)), "{op:?}: {answer:?}");
            }
        }

        // Reading alone.
        assert_eq!(call(&reader, &one, 0, create("new", one.root)).await, Err(Kind::ReadOnly));
        assert_eq!(call(&reader, &one, 0, Op::Open { ino: roots, truncate: true }).await, Err(Kind::ReadOnly));
        assert!(call(&reader, &one, 0, Op::Lookup { parent: one.root, name: name("roots") }).await.is_ok());

        // A superuser who counts as nobody.
        let made = call(&squashed, &one, 0, create("nobodys", one.root)).await;
        let Ok(Reply::Attr(attr)) = &made else { panic!("attributes, not {made:?}") };
        assert_eq!((attr.inode.uid, attr.inode.gid), (NOBODY, NOBODY));
        let nobodys = attr.ino;
        let users = call(&squashed, &one, 1000, create("users", one.root)).await;
        assert!(matches!(&users, Ok(Reply::Attr(attr)) if attr.inode.uid == 1000), "{users:?}");
        let mode = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
        let owner = |uid| SetAttr { uid: Some(uid), ..SetAttr::default() };
        let time = SetAttr { mtime: Some(SetTime::To(Time(5))), ..SetAttr::default() };
        let device = |kind| Op::MakeNode { parent: one.root, name: name("node"), kind, mode: 0o600, rdev: 1 };
        let attribute = |ino, text: &str| Op::SetXattr {
            ino,
            name: Name::new(text.as_bytes()).expect("a name"),
            value: Arc::from(&b"v"[..]),
            how: SetHow::Any,
            kill_setgid: false,
        };
        for (op, allowed) in [
            (set(roots, mode), false),
            (set(nobodys, mode), true),
            (set(roots, owner(NOBODY)), false),
            (set(nobodys, owner(0)), false),
            (set(nobodys, owner(1000)), false),
            (set(roots, time), true),
            (device(FileKind::BlockDevice), false),
            (device(FileKind::Character), false),
            (device(FileKind::Fifo), true),
            (attribute(roots, "trusted.a"), false),
            (attribute(nobodys, "security.capability"), false),
            (attribute(roots, "system.posix_acl_access"), false),
            (attribute(roots, "user.a"), true),
        ] {
            let answer = call(&squashed, &one, 0, op.clone()).await;
            assert_eq!(answer != Err(Kind::Permission), allowed, "{op:?}: {answer:?}");
        }
        groups.close().await.expect("a healthy brick closes");
    });
}
