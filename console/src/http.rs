//! Requests and answers. Promises that only reads are answered, that pages of other sites neither read what is told here (no
//! CORS; the Host header is checked) nor show it within theirs, and that the console's own page runs and loads nothing but
//! what is compiled in.

use crate::address::is_own_host;
use crate::metrics;
use crate::watch::Watch;
use crate::{Addresses, Source};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{RawQuery, Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A page of metrics serves all who ask within this time: many scrapers cost what one does.
const FRESH: Duration = Duration::from_secs(1);
/// Longest time for a page of metrics. A daemon that takes longer waits for its device.
const PATIENCE: Duration = Duration::from_secs(5);

/// Headers of every answer. Only the console's own files may be loaded; they hold no inline script or style.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The console's files: path, media type, content.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("../assets/index.html")),
    ("/console.css", "text/css; charset=utf-8", include_str!("../assets/console.css")),
    ("/console.js", "text/javascript; charset=utf-8", include_str!("../assets/console.js")),
    ("/uPlot.css", "text/css; charset=utf-8", include_str!("../assets/uPlot.min.css")),
    ("/uPlot.js", "text/javascript; charset=utf-8", include_str!("../assets/uPlot.iife.min.js")),
];

/// The daemon, as answers need it.
pub struct Shared {
    pub source: Arc<dyn Source>,
    pub watch: Arc<Watch>,
    pub pages: SyncSender<Wanted>,
}

/// The place for a page of metrics that somebody waits for; None if the daemon can't tell.
pub type Wanted = oneshot::Sender<Option<Bytes>>;

/// Makes pages of metrics for those who want them, until nobody can ask any more.
pub fn make_pages(wanted: &Receiver<Wanted>, source: &dyn Source) {
    let mut kept: Option<(Instant, Bytes)> = None;
    while let Ok(wanted) = wanted.recv() {
        kept = kept.filter(|(made, _)| made.elapsed() < FRESH).or_else(|| {
            let page = metrics::page(source.snapshot(Duration::ZERO)?, source.version());
            Some((Instant::now(), Bytes::from(page)))
        });
        // A scraper that has gone needs no page: then sending fails, which does no harm.
        let _ = wanted.send(kept.as_ref().map(|(_, page)| page.clone()));
    }
}

/// The answers at one address, to which `serves` leads.
pub fn router(shared: Arc<Shared>, serves: Serves) -> Router {
    let mut router = Router::new();
    if serves.metrics {
        router = router.route("/metrics", get(metrics));
    }
    if serves.console {
        router = router.route("/view", get(view));
        for (path, kind, content) in FILES {
            router = router.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], content) }));
        }
    }
    router.layer(middleware::from_fn(guard)).with_state(shared)
}

/// The things that an address serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serves {
    pub metrics: bool,
    pub console: bool,
}

impl Serves {
    /// The different addresses, each with what it serves.
    pub fn of(addresses: &Addresses) -> Vec<(std::net::SocketAddr, Serves)> {
        let Addresses { metrics, console } = *addresses;
        // Port 0 is a port of its own for each.
        match (metrics, console) {
            (Some(one), Some(other)) if one == other && one.port() != 0 => {
                vec![(one, Serves { metrics: true, console: true })]
            }
            _ => {
                let metrics = metrics.map(|address| (address, Serves { metrics: true, console: false }));
                let console = console.map(|address| (address, Serves { metrics: false, console: true }));
                metrics.into_iter().chain(console).collect()
            }
        }
    }
}

async fn guard(request: Request, next: Next) -> Response {
    let mut response = match refusal(request.method(), request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(method: &Method, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_own_host) {
        return Some((StatusCode::MISDIRECTED_REQUEST, "ask for localhost, 127.0.0.1 or [::1]\n"));
    }
    let reads = [Method::GET, Method::HEAD].contains(method);
    (!reads).then_some((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n"))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let (wanted, page) = oneshot::channel();
    // Refused only when more wait than there are connections: then it is late anyway.
    let asked = shared.pages.try_send(wanted).is_ok();
    match tokio::time::timeout(PATIENCE, page).await {
        Ok(Ok(Some(page))) if asked => ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], page).into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending, or waits for its device\n").into_response(),
    }
}

async fn view(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    match query.as_deref().map_or(Ok(0.0), |query| query.strip_prefix("after=").unwrap_or(query).parse()) {
        Ok(after) => {
            let view = shared.watch.view(after, &*shared.source);
            ([(header::CONTENT_TYPE, "application/json")], view).into_response()
        }
        Err(_) => (StatusCode::BAD_REQUEST, "after=SECONDS is all that can be asked\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_the_same_are_served_as_one() {
        let address = |text: &str| text.parse().expect("an address");
        let (one, other, any) = (address("127.0.0.1:1"), address("127.0.0.1:2"), address("127.0.0.1:0"));
        let of = |metrics, console| Serves::of(&Addresses { metrics, console });
        let serves = |metrics, console| Serves { metrics, console };
        assert_eq!(of(None, None), []);
        assert_eq!(of(Some(one), None), [(one, serves(true, false))]);
        assert_eq!(of(Some(one), Some(other)), [(one, serves(true, false)), (other, serves(false, true))]);
        assert_eq!(of(Some(one), Some(one)), [(one, serves(true, true))]);
        assert_eq!(of(Some(any), Some(any)).len(), 2);
    }

    #[test]
    fn only_reads_for_this_machine_are_answered() {
        let refused = |method: Method, host: Option<&'static str>| {
            let host = host.map(|host| (header::HOST, HeaderValue::from_static(host)));
            refusal(&method, &host.into_iter().collect()).map(|(status, _)| status.as_u16())
        };
        assert_eq!(refused(Method::GET, Some("127.0.0.1:9470")), None);
        assert_eq!(refused(Method::HEAD, Some("localhost")), None);
        assert_eq!(refused(Method::GET, Some("attacker.example:9470")), Some(421));
        assert_eq!(refused(Method::GET, None), Some(421));
        assert_eq!(refused(Method::POST, Some("localhost")), Some(405));
        assert_eq!(refused(Method::OPTIONS, Some("localhost")), Some(405));
    }

    #[test]
    fn the_page_holds_no_inline_script_or_style() {
        let page = FILES[0].2;
        for (at, _) in page.match_indices("<script") {
            assert!(
                page[at..].starts_with("<script src=\"/") && page[at..].contains("></script>"),
                "{}",
                &page[at..at + 40]
            );
        }
        for inline in ["<style", " style=", " onclick=", " onload=", "javascript:", "http://", "https://"] {
            assert!(!page.contains(inline), "{inline}");
        }
        for (path, ..) in FILES.iter().skip(1) {
            assert!(page.contains(&format!("\"{path}\"")), "{path} is used");
        }
    }
}
