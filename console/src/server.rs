//! The threads: one serves, one makes pages of metrics, and one looks on behalf of those who watch. Promises that clients,
//! however many and however slow, hold no more than a bounded number of connections for seconds, and that serving gives way to
//! everybody else on a busy CPU. Looking does not: it takes locks for which requests may wait, and gives them back at once.

use crate::http::{Serves, Shared, make_pages, router};
use crate::watch::Watch;
use crate::{Addresses, Source};
use axum::Router;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Connections served at once at one address. A browser makes six, a scraper one; another dozen of both find room. Whoever
/// has been there for longest gives way to who comes, so that clients who never ask, or never read, keep nobody out.
const CONNECTIONS_MAX: usize = 64;
/// Longest life of a connection, which carries one request: a busy machine needs a second for an answer, and its network
/// another one.
const LIFE: Duration = Duration::from_secs(10);
/// Most bytes of a request's head: a browser sends one or two KiB.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after a connection could not be accepted: out of descriptors or memory, which both pass.
const PAUSE: Duration = Duration::from_millis(100);

/// Addresses that are listened at; nothing is answered yet.
pub struct Listening(Vec<(TcpListener, Serves)>);

impl Listening {
    /// Listens. Errors: the address that can't be had, and why.
    pub fn at(addresses: &Addresses) -> Result<Listening, (SocketAddr, std::io::Error)> {
        let listen = |(address, serves): (SocketAddr, Serves)| {
            let listener = TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            Ok((listener.map_err(|error| (address, error))?, serves))
        };
        Serves::of(addresses).into_iter().map(listen).collect::<Result<_, _>>().map(Listening)
    }
    /// The URLs, in words for an operator.
    pub fn told(&self) -> Vec<String> {
        let urls = |(listener, serves): &(TcpListener, Serves)| {
            let at = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
            let metrics = serves.metrics.then(|| format!("metrics at http://{at}/metrics"));
            metrics.into_iter().chain(serves.console.then(|| format!("console at http://{at}/"))).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(urls).collect()
    }
}

/// The running threads; `stop` ends them.
pub struct Server {
    ending: oneshot::Sender<()>,
    watch: Arc<Watch>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Answers from now on. None if there is no address.
    pub fn start(listening: Listening, source: Arc<dyn Source>) -> std::io::Result<Option<Server>> {
        if listening.0.is_empty() {
            return Ok(None);
        }
        let executor = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (watch, (pages, wanted)) = (Arc::new(Watch::default()), sync_channel(CONNECTIONS_MAX));
        let any = |served: fn(&Serves) -> bool| listening.0.iter().any(|(_, serves)| served(serves));
        let (is_scraped, is_watched) = (any(|serves| serves.metrics), any(|serves| serves.console));
        let shared = Arc::new(Shared { source: source.clone(), watch: watch.clone(), pages });
        let (ending, ended) = oneshot::channel();
        let serve = move || {
            runtime::real::set_least_priority();
            executor.block_on(async move {
                for (listener, serves) in listening.0 {
                    tokio::spawn(accept(listener, router(shared.clone(), serves)));
                }
                // An error means that the server's handle was dropped, which ends it too.
                let _ = ended.await;
            });
        };
        let mut server = Server { ending, watch: watch.clone(), threads: Vec::new() };
        server.begin("sinter-http", serve)?;
        if is_scraped {
            let source = source.clone();
            server.begin("sinter-metrics", move || {
                runtime::real::set_batch_policy();
                make_pages(&wanted, &*source);
            })?;
        }
        if is_watched {
            server.begin("sinter-console", move || {
                runtime::real::set_batch_policy();
                watch.run(&*source);
            })?;
        }
        Ok(Some(server))
    }
    fn begin(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }
    /// Ends: connections are cut, and a look at the daemon that is under way is the last one.
    pub fn stop(self) {
        // The thread has ended only if it panicked, which ended the process.
        let _ = self.ending.send(());
        self.watch.stop();
        self.threads.into_iter().for_each(|thread| thread.join().expect("a thread that panics ends the process"));
    }
}

async fn accept(listener: TcpListener, router: Router) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the thread's runtime has a poller");
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(serve(stream, router.clone())).abort_handle());
        // Those that were told to end do so, before another one is let in.
        tokio::task::yield_now().await;
    }
}

async fn serve(stream: tokio::net::TcpStream, router: Router) {
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // An error here is the client's: it went away, sent no request, or was too slow.
    drop(tokio::time::timeout(LIFE, connection).await);
}
