//! The stack above the groups of a brick in a simulated world.

use super::*;
use base::limits::{LAYERS_MAX, SEGMENT_BYTES_MIN};
use base::{Ino, Kind, Name, Operations, Reply, RequestId, SessionId, Time, VolumeId};
use group::Groups;
use runtime::Span;
use runtime::sim::World;
use runtime::tasks::both;
use store::index::model::ModelIndex;
use store::{FormatOptions, Opening};

fn context(request: u64) -> Context {
    context_on(VolumeId(0), request)
}

pub(crate) fn context_on(volume: VolumeId, request: u64) -> Context {
    let own = Context::own(volume, Span::start(runtime::Stamp(0)));
    Context { session: SessionId(1), request: RequestId(request), ..own }
}

pub(crate) async fn groups(runtime: runtime::Runtime) -> Arc<Groups> {
    let size = Some(64 * SEGMENT_BYTES_MIN);
    let options = FormatOptions {
        size_bytes: size,
        segment_bytes: SEGMENT_BYTES_MIN,
        groups: 4,
        size_bytes_min: 0,
        device: None,
        further: Vec::new(),
    };
    store::format_brick(&runtime, options, async || Ok(())).await.expect("an empty disk can be formatted");
    let index = Arc::new(ModelIndex::new(store::format::leaf::merge));
    let opening = Opening::read(runtime, index, true).await.expect("just formatted");
    Groups::open(opening, group::Options::for_memory(64 << 20)).await.expect("an empty log replays").0
}

fn named(operation: &str) -> Operations {
    Operations::of(Some(operation)).expect("its name")
}

fn fault(operation: &str, kind: Kind, every: u64) -> Layer {
    Layer::Fault { operations: named(operation), kind, every }
}

fn delay(operations: Operations, ns: u64) -> Layer {
    Layer::Delay { operations, ns }
}

fn stat() -> Call {
    Call { op: Op::StatFs, data: None }
}

#[test]
fn the_first_users_have_flows_of_their_own_and_others_share_them() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        let stack = Stack::new(groups.clone(), &[], &Limits::NONE);
        let flow = |uid| stack.flow_of(uid);
        assert!(Arc::ptr_eq(&flow(1000), stack.flow()), "a volume of one user has one flow");
        let all: Vec<_> = (1000..1008).map(flow).collect();
        assert!((1..8).all(|one| (0..one).all(|other| !Arc::ptr_eq(&all[one], &all[other]))));
        assert!((0..10_000).all(|uid| all.iter().any(|known| Arc::ptr_eq(known, &flow(uid)))));
        assert!(Arc::ptr_eq(&flow(1003), &all[3]), "each keeps its own");
        groups.close().await.expect("a healthy brick closes");
    });
}

#[test]
fn fault_and_delay_act_on_what_they_name_and_are_counted() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        let layers = [delay(Operations::All, 5_000_000), fault("statfs", Kind::Busy, 2)];
        let stack = Stack::new(groups.clone(), &layers, &Limits::NONE);
        let start_ns = runtime.clock.now_ns();
        assert!(stack.call(&context(1), stat()).await.is_ok());
        assert!(runtime.clock.now_ns() - start_ns >= 5_000_000);
        let error = stack.call(&context(2), stat()).await.err().expect("every second one fails");
        assert_eq!(error.kind, Kind::Busy);
        assert!(stack.call(&context(3), Call { op: Op::VolumeList, data: None }).await.is_ok());
        // Nobody waits for its answer, so nobody would notice.
        let forget = Call { op: Op::Forget { ino: Ino(2), times: 1 }, data: None };
        let start_ns = runtime.clock.now_ns();
        assert!(stack.call(&context(4), forget).await.is_ok());
        assert!(runtime.clock.now_ns() - start_ns < 5_000_000);
        let hops = stack.hops();
        assert_eq!((hops[0].layer, hops[0].calls, hops[0].answered), (layers[0], 4, 0));
        assert_eq!((hops[1].layer, hops[1].calls, hops[1].answered), (layers[1], 4, 1));
        assert!((15_000_000..20_000_000).contains(&hops[0].ns));
        groups.close().await.expect("a healthy brick closes");
    });
}

/// A volume with a file, read once, and its stack.
pub(crate) async fn volume(runtime: &Runtime, groups: &Arc<Groups>, layers: &[Layer]) -> (Stack, VolumeId, Ino) {
    let bare = Stack::new(groups.clone(), &[], &Limits::NONE);
    let ask = async |volume, request, op| bare.call(&context_on(volume, request), Call { op, data: None }).await;
    let name = || Name::new(b"one").expect("a name");
    let made =
        ask(VolumeId(0), 1, Op::VolumeCreate { name: name(), size_bytes: None }).await.map(|answer| answer.reply);
    let Ok(Reply::Volume(volume)) = made else { panic!("a volume is told") };
    let create = Op::Create { parent: volume.root, name: name(), mode: 0o644, exclusive: true };
    let Ok(Reply::Attr(file)) = ask(volume.id, 2, create).await.map(|answer| answer.reply) else {
        panic!("a file is told")
    };
    let mut data = runtime.buffer(4096).expect("within the bound");
    data.fill(7);
    let op = Op::Write { ino: file.ino, at: base::At::End, sync: base::Sync::Ordered, kill_privileges: false };
    let written = bare.call(&context_on(volume.id, 3), Call { op, data: Some(data) }).await;
    assert!(written.is_ok());
    (Stack::new(groups.clone(), layers, &Limits::NONE), volume.id, file.ino)
}

async fn access_time(stack: &Stack, volume: VolumeId, ino: Ino) -> Time {
    let call = Call { op: Op::GetAttr { ino }, data: None };
    let told = stack.call(&context_on(volume, 1000), call).await.map(|answer| answer.reply);
    let Ok(Reply::Attr(attr)) = told else { panic!("attributes are told") };
    attr.inode.atime
}

#[test]
fn a_read_only_layer_refuses_changes_and_leaves_access_times() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        let (stack, volume, ino) = volume(&runtime, &groups, &[Layer::ReadOnly]).await;
        runtime.clock.sleep(1_000_000_000).await;
        let before = access_time(&stack, volume, ino).await;
        let read = || Call { op: Op::Read { ino, offset: 0, length: 4096 }, data: None };
        let context = context_on(volume, 10);
        assert!(stack.call(&context, read()).await.is_ok_and(|answer| answer.reply == Reply::Data { length: 4096 }));
        assert!(!context.noatime, "the caller's context is as it was");
        assert_eq!(access_time(&stack, volume, ino).await, before);
        let set = Box::new(base::SetAttr { mode: Some(0o600), ..base::SetAttr::default() });
        let refused = [Op::SetAttr { ino, set }, Op::Open { ino, truncate: true }];
        for (op, request) in refused.into_iter().zip(20..) {
            let answer = stack.call(&context_on(volume, request), Call { op, data: None }).await;
            assert_eq!(answer.err().map(|error| error.kind), Some(Kind::ReadOnly));
        }
        let passed = [Op::Open { ino, truncate: false }, Op::Release { ino }, Op::SyncAll];
        for (op, request) in passed.into_iter().zip(30..) {
            assert!(stack.call(&context_on(volume, request), Call { op, data: None }).await.is_ok());
        }
        let [hop] = stack.hops()[..] else { panic!("one layer") };
        assert_eq!((hop.calls, hop.answered, hop.changed), (8, 2, 1));
        // Without it, reading moves the time.
        stack.put(stack.plan(&Change::Remove { at: 1 }).expect("it is there"));
        assert!(stack.call(&context_on(volume, 40), read()).await.is_ok());
        runtime.clock.sleep(1_000_000_000).await;
        assert!(access_time(&stack, volume, ino).await > before);
        groups.close().await.expect("a healthy brick closes");
    });
}

#[test]
fn layers_are_put_in_moved_and_taken_out_and_keep_their_figures() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        let stack = Stack::new(groups.clone(), &[], &Limits::NONE);
        let planned = |change| stack.plan(&change).map(|plan| stack.put(plan)).map_err(|error| error.kind);
        let names = || stack.hops().iter().map(|hop| hop.layer.name()).collect::<Vec<_>>();
        let slow = delay(named("lookup"), 1);
        assert_eq!(planned(Change::Remove { at: 1 }), Err(Kind::Invalid));
        assert_eq!(planned(Change::Add { layer: Layer::ReadOnly, at: Some(2) }), Err(Kind::Invalid));
        assert_eq!(planned(Change::Add { layer: delay(Operations::All, 0), at: None }), Err(Kind::Invalid));
        assert_eq!(planned(Change::Add { layer: Layer::ReadOnly, at: None }), Ok(()));
        assert_eq!(planned(Change::Add { layer: slow, at: None }), Ok(()));
        assert!(stack.call(&context(1), stat()).await.is_ok());
        assert_eq!(planned(Change::Add { layer: fault("statfs", Kind::Io, 2), at: Some(1) }), Ok(()));
        assert_eq!(names(), ["fault", "read-only", "delay"]);
        assert!(stack.call(&context(2), stat()).await.is_ok());
        assert_eq!(planned(Change::Move { from: 3, to: 1 }), Ok(()));
        assert_eq!(names(), ["delay", "fault", "read-only"]);
        // The fault has seen the one before.
        assert!(stack.call(&context(3), stat()).await.is_err());
        let figures = stack.hops().iter().map(|hop| (hop.calls, hop.answered)).collect::<Vec<_>>();
        assert_eq!(figures, [(3, 0), (2, 1), (2, 0)]);
        // As somebody else has changed them.
        let layers = |stack: &Stack| stack.hops().iter().map(|hop| hop.layer).collect::<Vec<_>>();
        let now = layers(&stack);
        assert!(stack.plan_of(&now).is_none(), "nothing has changed");
        stack.put(stack.plan_of(&[now[2], slow, slow]).expect("other ones"));
        assert_eq!(layers(&stack), [now[2], slow, slow]);
        assert_eq!(stack.hops().iter().map(|hop| hop.calls).collect::<Vec<_>>(), [2, 3, 0], "figures are kept");
        for (from, to) in [(0, 1), (1, 0), (4, 1), (1, 4)] {
            assert_eq!(planned(Change::Move { from, to }), Err(Kind::Invalid));
        }
        while names().len() < LAYERS_MAX {
            assert_eq!(planned(Change::Add { layer: slow, at: Some(1) }), Ok(()));
        }
        assert_eq!(planned(Change::Add { layer: slow, at: Some(1) }), Err(Kind::Invalid));
        while !names().is_empty() {
            assert_eq!(planned(Change::Remove { at: 1 }), Ok(()));
        }
        assert!(stack.call(&context(4), stat()).await.is_ok());
        groups.close().await.expect("a healthy brick closes");
    });
}

/// An operator who takes a delay of a minute out does not wait for that minute.
#[test]
fn what_a_delay_holds_is_let_go_when_the_stack_changes() {
    let mut world = World::new(4);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        let stack =
            Stack::new(groups.clone(), &[delay(Operations::All, 60_000_000_000), Layer::ReadOnly], &Limits::NONE);
        let start_ns = runtime.clock.now_ns();
        let held = async {
            let answer = stack.call(&context(1), stat()).await;
            answer.is_ok().then(|| runtime.clock.now_ns() - start_ns)
        };
        let change = async {
            runtime.clock.sleep(1_000_000_000).await;
            stack.put(stack.plan(&Change::Remove { at: 2 }).expect("it is there"));
            None
        };
        let (took_ns, _) = both(held, change).await;
        assert!(took_ns.is_some_and(|ns| (1_000_000_000..1_200_000_000).contains(&ns)), "{took_ns:?}");
        groups.close().await.expect("a healthy brick closes");
    });
}
