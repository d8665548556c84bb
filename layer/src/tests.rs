use super::*;
use base::limits::SEGMENT_BYTES_MIN;
use base::{Kind, Name, RequestId, SessionId, VolumeId};
use runtime::Span;
use runtime::sim::World;
use store::index::model::ModelIndex;
use store::{FormatOptions, Opening};

fn context(request: u64) -> Context {
    Context {
        volume: VolumeId(0),
        session: SessionId(1),
        request: RequestId(request),
        uid: 0,
        gid: 0,
        umask: 0,
        noatime: false,
        unkept: false,
        keeps: false,
        written_back: false,
        deadline_ns: u64::MAX,
        class: Class::Foreground,
        trace: 0,
        cut: 0,
        membership: 1,
        span: Span::start(runtime::Stamp(0)),
    }
}

async fn groups(runtime: runtime::Runtime) -> Arc<Groups> {
    let size = Some(64 * SEGMENT_BYTES_MIN);
    let options = FormatOptions {
        size_bytes: size,
        segment_bytes: SEGMENT_BYTES_MIN,
        groups: 4,
        size_bytes_min: 0,
        device: None,
    };
    store::format_brick(&runtime, options, async || Ok(())).await.expect("an empty disk can be formatted");
    let index = Arc::new(ModelIndex::new(store::format::leaf::merge));
    let opening = Opening::read(runtime, index, true).await.expect("just formatted");
    Groups::open(opening, group::Options::for_memory(64 << 20)).await.expect("an empty log replays").0
}

fn list() -> Call {
    Call { op: Op::VolumeList, data: None }
}

#[test]
fn fault_and_delay_act_on_what_they_name_and_are_counted() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let groups = groups(runtime.clone()).await;
        let fault = Layer::Fault(Fault::new(Some("volume-list".into()), Kind::Busy, 2));
        let delay = Layer::Delay(Delay::new(None, 5_000_000));
        let stack = Stack::new(groups.clone(), vec![delay, fault]);
        let start_ns = runtime.clock.now_ns();
        assert!(stack.call(&context(1), list()).await.is_ok());
        assert!(runtime.clock.now_ns() - start_ns >= 5_000_000);
        let error = stack.call(&context(2), list()).await.err().expect("every second one fails");
        assert_eq!(error.kind, Kind::Busy);
        let name = Name::new(b"other").expect("a name");
        assert!(
            stack.call(&context(3), Call { op: Op::VolumeCreate { name, size_bytes: None }, data: None }).await.is_ok()
        );
        let hops = stack.hops();
        assert_eq!((hops[0].name, hops[0].calls, hops[0].answered), ("delay", 3, 0));
        assert_eq!((hops[1].name, hops[1].calls, hops[1].answered), ("fault", 3, 1));
        assert!(hops[0].ns >= 15_000_000);
        groups.close().await.expect("a healthy brick closes");
    });
}
