//! A client's session is let in by each of its connections. What one that fails leaves behind takes nothing from the others.

use base::{Name, Op, SessionId};
use runtime::sim::{Fleet, Setup};
use runtime::{Buf, Runtime};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::client::{Client, Options};
use wire::codec::hello::{Hello, HelloOk, Join, Joined, Reason, Refused};
use wire::codec::session::{Changed, Held};
use wire::server::{Admission, Admitted, Server, Service};
use wire::{Answer, Context};

const MS: u64 = 1_000_000;

/// Knows the sessions that it has let in. The first that asks is refused, and forgotten slowly.
struct Hesitant {
    runtime: Runtime,
    /// True if another client is in the way for good.
    is_in_use: bool,
    asked: AtomicUsize,
    /// One more copy for each connection that is being let in.
    coming: Arc<()>,
    known: Mutex<BTreeSet<SessionId>>,
    /// Number of sessions that were let in, and then forgotten.
    lost: AtomicUsize,
}

impl Service for Hesitant {
    type Volume = ();
    type Client = Arc<()>;

    async fn recognise(&self, _: Option<&[u8]>, _: &Hello) -> Result<Arc<()>, Refused> {
        Ok(self.coming.clone())
    }
    async fn join(&self, _: &Join, _: Option<&[u8]>) -> Result<Joined, Refused> {
        unreachable!("nobody joins here")
    }
    async fn admit(&self, session: SessionId, _: &Hello, _: Arc<()>) -> Result<Admission<()>, Refused> {
        if self.is_in_use {
            return Ok(Admission::After(vec![SessionId(1)]));
        }
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(Refused { reason: Reason::Busy, text: "not yet".into() });
        }
        self.known.lock().expect("no panic").insert(session);
        Ok(Admission::In(Admitted { welcome: HelloOk::bare("test"), flow: None, volume: () }))
    }
    async fn turn_away(&self, session: SessionId) {
        self.runtime.clock.sleep(50 * MS).await;
        let was_known = self.known.lock().expect("no panic").remove(&session);
        self.lost.fetch_add(usize::from(was_known), Ordering::Relaxed);
    }
    async fn call(&self, (): &(), _: &Context, _: Op, _: Option<Buf>) -> base::Result<Answer> {
        unreachable!("nobody asks for anything here")
    }
    async fn reclaim(&self, _: SessionId, _: (&[Held], &[Changed]), _: bool, _: bool) -> base::Result<Vec<base::Ino>> {
        Ok(Vec::new())
    }
    fn answered(&self, _: SessionId, _: u64) {}
    async fn end(&self, _: SessionId) -> base::Result<()> {
        Ok(())
    }
}

/// A server and a client on two hosts. `is_in_use`: another client is in the way for good.
struct Pair {
    fleet: Fleet,
    service: Arc<Hesitant>,
    _server: Arc<Server<Hesitant>>,
    client: Arc<Client>,
}

fn pair(is_in_use: bool) -> Pair {
    let fleet = Fleet::with_patience(1, 3_600_000_000_000);
    let hosts = fleet.hosts().clone();
    (0..2).for_each(|number| drop(hosts.boot(number, Setup::new(1))));
    let (runtime, address) = (hosts.runtime(0), hosts.links().address(0, 7400));
    let service = Arc::new(Hesitant {
        runtime: runtime.clone(),
        is_in_use,
        asked: AtomicUsize::new(0),
        coming: Arc::default(),
        known: Mutex::default(),
        lost: AtomicUsize::new(0),
    });
    let listener = runtime.net.listen(&address).expect("nobody listens there");
    let server = Server::start(&runtime, listener, None, service.clone(), &[]);
    let options = Options {
        // Nobody listens at the second one. Who has several gives up a server that does not answer.
        addresses: vec![address, hosts.links().address(0, 7401)],
        volume: Name::new(b"any").expect("a name"),
        who: "client".into(),
        read_only: false,
        credentials: None,
        soft_ns: None,
    };
    let client = Client::start(&hosts.runtime(1), options);
    Pair { fleet, service, _server: server, client }
}

#[test]
fn attempts_that_nobody_waits_for_any_more_do_not_pile_up() {
    let Pair { mut fleet, service, client: _client, .. } = pair(true);
    let clock = fleet.hosts().clock().clone();
    fleet.block_on(async {
        let mut most = Vec::new();
        for _ in 0..2 {
            let mut coming = 0;
            for _ in 0..300 {
                clock.sleep(1_000 * MS).await;
                coming = coming.max(Arc::strong_count(&service.coming));
            }
            most.push(coming);
        }
        assert!(most[1] > 2, "attempts outlast those who made them: {most:?}");
        assert!(most[1] <= most[0], "there are no more after ten minutes than after five: {most:?}");
    });
}

#[test]
fn a_connection_that_is_refused_does_not_end_the_session_of_another_one() {
    let Pair { mut fleet, service, client, .. } = pair(false);
    let hosts = fleet.hosts().clone();
    fleet.block_on(async {
        client.welcome().await.expect("it is let in");
        hosts.clock().sleep(1_000 * MS).await;
        assert!(service.asked.load(Ordering::Relaxed) > 1, "each connection asks");
        assert_eq!(service.known.lock().expect("no panic").len(), 1, "it was welcomed");
        assert_eq!(service.lost.load(Ordering::Relaxed), 0, "the server knew it all the time");
    });
}
