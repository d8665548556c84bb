//! The part of etcd's interface that a cluster uses: ranges, guarded puts and leases, over HTTP and JSON (etcd's "gRPC gateway"), which
//! etcd serves since 3.4 at the port of its clients.
//!
//! Promises: each call ends within seconds, whatever the server does; endpoints are tried in turn, the one that answered last first; what
//! was refused says by whom, why, and what to do. Absent by design: watches (a look every few seconds does for a few keys), and all that is
//! not asked for here. Every call blocks: it belongs on a thread of its own.

use super::access::Access;
use base::{Error, Kind, Result};
use data_encoding::BASE64;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body, http};

/// Time for a connection, and for a whole call: etcd answers in milliseconds, and elects a new leader within some two seconds.
const CONNECT: Duration = Duration::from_secs(2);
const CALL: Duration = Duration::from_secs(5);
/// Longest answer: a cluster has some 200 bytes for each of its 64 nodes at most.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// The oldest version of etcd that serves what is asked for here.
const VERSION_MIN: (u32, u32) = (3, 4);
/// The certificates of authorities that the system trusts, where Debian and others keep them.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Largest file of certificates or keys.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// The code of etcd for a member that can't serve now: another one may.
const UNAVAILABLE: u64 = 14;

/// A lease: keys that are put with it vanish when it is not kept alive for its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease(i64);

/// A key's value, and the number of the change that wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of etcd in which it was last written.
    pub revision: i64,
}

/// A value that is to be put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The lease with which it vanishes; None: it stays.
    pub lease: Option<Lease>,
}

/// A client of etcd.
pub struct Client {
    agent: Agent,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    at: usize,
}

/// The outcome of a call at one endpoint that did not succeed.
enum Failed {
    /// Another endpoint may do.
    There(Error),
    /// No other will.
    Everywhere(Error),
}

impl Client {
    /// A client of these endpoints; nothing is sent yet. Errors: a file of certificates or keys can't be read, or has none.
    pub fn open(access: &Access) -> Result<Client> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("sinter/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(CALL));
        if access.is_encrypted() {
            config = config.tls_config(tls(access)?);
        }
        Ok(Client { agent: config.build().new_agent(), endpoints: access.endpoints.clone(), at: 0 })
    }
    /// Refuses an etcd that is too old. Its version. Errors: `Unsupported`; as `call`.
    pub fn check_version(&mut self) -> Result<String> {
        let told = self.call("/version", None)?;
        let version = told["etcdserver"].as_str().unwrap_or_default().to_string();
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) if (major, minor) >= VERSION_MIN => Ok(version),
            (Some(_), Some(_)) => {
                let what = "this etcd is too old: upgrade it to 3.4 or a later version";
                Err(Error::new(Kind::Unsupported, what).with(version))
            }
            _ => Err(Error::new(Kind::Unsupported, "this server does not say that it is etcd: correct the endpoints")),
        }
    }
    /// All keys that begin so, in order, as of one moment. Errors: as `call`.
    pub fn range(&mut self, prefix: &str) -> Result<Vec<Row>> {
        let mut end = prefix.as_bytes().to_vec();
        // The first string behind all that begin so: prefixes end with a character below the last.
        *end.last_mut().expect("a prefix is not empty") += 1;
        let asked = json!({ "key": encoded(prefix.as_bytes()), "range_end": encoded(&end) });
        rows(&self.call("/v3/kv/range", Some(&asked))?["kvs"])
    }
    /// The row of a key; None if there is none. Errors: as `call`.
    pub fn get(&mut self, key: &str) -> Result<Option<Row>> {
        let told = self.call("/v3/kv/range", Some(&json!({ "key": encoded(key.as_bytes()) })))?;
        Ok(rows(&told["kvs"])?.pop())
    }
    /// Puts all or nothing: nothing, if a key was written in another revision than in this one (0: there is none). False then. Errors: as
    /// `call`; after one, the puts may have been made.
    pub fn put_if(&mut self, (key, revision): (&str, i64), puts: &[Put]) -> Result<bool> {
        let put = |Put { key, value, lease }: &Put| {
            let lease = lease.map_or(0, |Lease(id)| id).to_string();
            json!({ "request_put": { "key": encoded(key.as_bytes()), "value": encoded(value), "lease": lease } })
        };
        let asked = json!({
            "compare": [{ "key": encoded(key.as_bytes()), "target": "MOD", "result": "EQUAL",
                          "mod_revision": revision.to_string() }],
            "success": puts.iter().map(put).collect::<Vec<_>>(),
        });
        let told = self.call("/v3/kv/txn", Some(&asked))?;
        Ok(told["succeeded"].as_bool().unwrap_or(false))
    }
    /// A new lease of so many seconds. Errors: as `call`.
    pub fn grant(&mut self, seconds: u32) -> Result<Lease> {
        let told = self.call("/v3/lease/grant", Some(&json!({ "TTL": seconds.to_string() })))?;
        number(&told["ID"]).filter(|id| *id != 0).map(Lease).ok_or_else(strange)
    }
    /// Keeps a lease alive; false if it is over. Errors: as `call`.
    pub fn keep(&mut self, Lease(id): Lease) -> Result<bool> {
        let told = self.call("/v3/lease/keepalive", Some(&json!({ "ID": id.to_string() })))?;
        Ok(number(&told["result"]["TTL"]).is_some_and(|left| left > 0))
    }
    /// Ends a lease; keys that were put with it are gone. Errors: as `call`; `NotFound`, if it is over.
    pub fn revoke(&mut self, Lease(id): Lease) -> Result<()> {
        self.call("/v3/lease/revoke", Some(&json!({ "ID": id.to_string() }))).map(drop)
    }

    /// Asks one endpoint after the other. Errors: `Host`, if none answers; `Permission`, if a certificate is refused; `NoSpace`, if etcd is
    /// full; `Unsupported`, if it knows no such request; `Invalid`, if the answer is none of etcd's.
    fn call(&mut self, path: &str, asked: Option<&Value>) -> Result<Value> {
        let mut first = None;
        for _ in 0..self.endpoints.len() {
            let endpoint = &self.endpoints[self.at];
            match self.ask(&format!("{endpoint}{path}"), asked) {
                Ok(told) => return Ok(told),
                Err(Failed::Everywhere(error)) => return Err(error.with(endpoint)),
                Err(Failed::There(error)) => drop(first.get_or_insert(error.with(endpoint))),
            }
            self.at = (self.at + 1) % self.endpoints.len();
        }
        Err(first.expect("there is an endpoint"))
    }
    fn ask(&self, url: &str, asked: Option<&Value>) -> std::result::Result<Value, Failed> {
        let answer = match asked {
            None => self.agent.get(url).call(),
            Some(asked) => self.agent.post(url).content_type("application/json").send(asked.to_string()),
        };
        let mut answer = answer.map_err(|error| Failed::There(unreached(error)))?;
        let status = answer.status();
        let text = read(&mut answer).map_err(|error| Failed::There(unreached(error)))?;
        // The gateway ends a stream's answers with a line break, and sends one for each request here.
        let told = serde_json::from_str::<Value>(&text);
        if !status.is_success() {
            return Err(refused(status, told.ok().as_ref()));
        }
        told.map_err(|error| Failed::There(strange().with(error)))
    }
}

fn read(answer: &mut http::Response<Body>) -> std::result::Result<String, ureq::Error> {
    answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string()
}

/// The refusal of a server that answers.
fn refused(status: http::StatusCode, told: Option<&Value>) -> Failed {
    let said = told.and_then(|told| told["message"].as_str().or_else(|| told["error"].as_str())).unwrap_or_default();
    let with = |error: Error| if said.is_empty() { error.with(status) } else { error.with(said) };
    if told.is_some_and(|told| told["code"].as_u64() == Some(UNAVAILABLE)) || status.as_u16() == 503 {
        return Failed::There(with(Error::new(
            Kind::Host,
            "etcd has no leader, or is just starting: wait, or look at its log",
        )));
    }
    if said.contains("database space exceeded") {
        let what = "etcd is full, so it takes no changes: compact and defragment it, or raise its quota, then \
                    `etcdctl alarm disarm`";
        return Failed::Everywhere(with(Error::new(Kind::NoSpace, what)));
    }
    if said.contains("requested lease not found") {
        return Failed::Everywhere(with(Error::new(Kind::NotFound, "the lease is over")));
    }
    if said.contains("permission denied") || said.contains("user name is empty") || said.contains("authentication") {
        let what = "etcd refuses who comes without a user: Sinter comes with a certificate, so leave etcd's users off for \
                    its keys, or give it an etcd of its own";
        return Failed::Everywhere(with(Error::new(Kind::Permission, what)));
    }
    if status.as_u16() == 404 {
        let what =
            "this etcd serves no requests in JSON: upgrade it to 3.4 or later, and leave --enable-grpc-gateway on";
        return Failed::Everywhere(with(Error::new(Kind::Unsupported, what)));
    }
    // A gateway that can't reach its own server, for example.
    Failed::There(with(Error::new(Kind::Host, "etcd can't answer: look at its log")))
}

/// The error of a server that does not answer.
fn unreached(error: ureq::Error) -> Error {
    let text = error.to_string();
    let is_certificate = ["certificate", "Certificate", "HandshakeFailure", "UnknownCA", "AccessDenied", "alert"];
    if is_certificate.iter().any(|part| text.contains(part)) {
        let what = "etcd and this node don't take each other's certificate: check --etcd-ca, and --etcd-cert with its \
                    --etcd-key, against etcd's own";
        return Error::new(Kind::Permission, what).with(text);
    }
    let what = match &error {
        ureq::Error::Timeout(_) => "etcd does not answer: look whether it runs, and at the network",
        ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            "nobody listens where etcd should: look whether it runs there"
        }
        ureq::Error::HostNotFound => "etcd's name is not known: look at DNS and /etc/hosts",
        _ => "etcd can't be reached: look whether it runs there, and whether it is http or https",
    };
    Error::new(Kind::Host, what).with(text)
}

fn strange() -> Error {
    Error::new(Kind::Invalid, "the answer is none of etcd's: correct the endpoints")
}

fn encoded(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The number in a field, which JSON of etcd has as text, and leaves out where it is 0.
fn number(field: &Value) -> Option<i64> {
    match field {
        Value::Null => Some(0),
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    }
}

fn rows(kvs: &Value) -> Result<Vec<Row>> {
    let bytes = |field: &Value| match field {
        Value::Null => Some(Vec::new()),
        field => field.as_str().and_then(|text| BASE64.decode(text.as_bytes()).ok()),
    };
    let row = |row: &Value| {
        let row = row.as_object()?;
        let row = |field: &str| row.get(field).unwrap_or(&Value::Null);
        let key = String::from_utf8(bytes(row("key"))?).ok()?;
        Some(Row { key, value: bytes(row("value"))?, revision: number(row("mod_revision"))? })
    };
    match kvs {
        Value::Null => Ok(Vec::new()),
        kvs => kvs.as_array().and_then(|kvs| kvs.iter().map(row).collect()).ok_or_else(strange),
    }
}

/// The certificates for encrypted endpoints.
fn tls(access: &Access) -> Result<TlsConfig> {
    let roots = access.ca.as_deref().unwrap_or(SYSTEM_CA.as_ref());
    let authorities = certificates(roots)?;
    let own = match (&access.cert, &access.key) {
        (Some(cert), Some(key)) => Some(ClientCert::new_with_certs(&certificates(cert)?, private_key(key)?)),
        _ => None,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&authorities))
        .client_cert(own)
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

fn pem(path: &std::path::Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(PEM_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| {
        Error::os("a file for etcd can't be read", error.raw_os_error().unwrap_or(libc::EIO)).with(path.display())
    })?;
    Ok(bytes)
}

fn certificates(path: &std::path::Path) -> Result<Vec<Certificate<'static>>> {
    let bytes = pem(path)?;
    let found: Vec<_> = ureq::tls::parse_pem(&bytes)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(Error::new(Kind::Invalid, "the file has no certificate in PEM").with(path.display())),
    }
}

fn private_key(path: &std::path::Path) -> Result<PrivateKey<'static>> {
    let none = |_| Error::new(Kind::Invalid, "the file has no private key in PEM").with(path.display());
    PrivateKey::from_pem(&pem(path)?).map_err(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Instant;

    /// A server that gives each connection this answer; None: it never answers.
    fn server(answer: Option<&str>) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let endpoint = format!("http://{}", listener.local_addr().expect("it listens"));
        let answer = answer.map(|body| {
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        });
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for mut stream in listener.incoming().flatten() {
                if let Some(answer) = &answer {
                    drop(stream.read(&mut [0; 4096]));
                    drop(stream.write_all(answer.as_bytes()));
                }
                kept.push(stream);
            }
        });
        endpoint
    }
    fn client(endpoints: &[String]) -> Client {
        Client::open(&Access::new(endpoints, [None; 3]).expect("right")).expect("it needs no file")
    }

    #[test]
    fn what_is_too_old_or_no_etcd_is_refused() {
        for (answer, is_right) in [
            (r#"{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}"#, true),
            (r#"{"etcdserver":"3.10.0"}"#, true),
            (r#"{"etcdserver":"4.0.0-rc.0"}"#, true),
            (r#"{"etcdserver":"3.3.25"}"#, false),
            (r#"{"etcdserver":"2.9"}"#, false),
            (r#"{"version":"3.5.0"}"#, false),
            ("[]", false),
        ] {
            let version = client(&[server(Some(answer))]).check_version();
            assert_eq!(version.is_ok(), is_right, "{answer}: {version:?}");
            assert!(is_right || version.is_err_and(|error| error.kind == Kind::Unsupported), "{answer}");
        }
        let error = client(&[server(Some("<html>"))]).check_version().expect_err("a page");
        assert_eq!(error.kind, Kind::Invalid, "{error}");
    }

    #[test]
    fn endpoints_that_hang_or_are_gone_are_passed_over() {
        let gone = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a port");
        let (hangs, good) = (server(None), server(Some(r#"{"etcdserver":"3.5.1"}"#)));
        let began = Instant::now();
        let mut three = client(&[format!("http://{gone}"), hangs.clone(), good]);
        assert_eq!(three.check_version().as_deref(), Ok("3.5.1"));
        assert!(began.elapsed() < 2 * CALL, "{:?}", began.elapsed());
        let again = Instant::now();
        three.check_version().expect("it answered just now");
        assert!(again.elapsed() < CALL, "the one that answered comes first");
        let error = client(&[hangs]).check_version().expect_err("it hangs");
        assert!(error.kind == Kind::Host && error.to_string().contains("does not answer"), "{error}");
    }

    #[test]
    fn answers_of_etcd_are_read() {
        let told = json!([{ "key": encoded(b"/sinter/a"), "value": encoded(b"x"), "mod_revision": "7", "lease": "3" },
                          { "key": encoded(b"/sinter/b"), "mod_revision": 8 }]);
        let row = |key: &str, value: &[u8], revision| Row { key: key.into(), value: value.into(), revision };
        assert_eq!(rows(&told), Ok(vec![row("/sinter/a", b"x", 7), row("/sinter/b", b"", 8)]));
        assert_eq!(rows(&Value::Null), Ok(Vec::new()), "no row at all");
        for strange in [json!(7), json!([7]), json!([{ "key": "?" }]), json!([{ "key": "", "mod_revision": "x" }])] {
            assert_eq!(rows(&strange).expect_err("not etcd's").kind, Kind::Invalid, "{strange}");
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let told = |code: u16, message: &str| {
            let told = json!({ "code": 8, "message": message });
            match refused(http::StatusCode::from_u16(code).expect("a status"), Some(&told)) {
                Failed::There(error) => (true, error),
                Failed::Everywhere(error) => (false, error),
            }
        };
        for (code, message, elsewhere, kind) in [
            (429, "etcdserver: mvcc: database space exceeded", false, Kind::NoSpace),
            (404, "Not Found", false, Kind::Unsupported),
            (404, "etcdserver: requested lease not found", false, Kind::NotFound),
            (400, "etcdserver: user name is empty", false, Kind::Permission),
            (503, "etcdserver: no leader", true, Kind::Host),
            (500, "whatever", true, Kind::Host),
        ] {
            let (may_elsewhere, error) = told(code, message);
            assert_eq!((may_elsewhere, error.kind), (elsewhere, kind), "{message}: {error}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
