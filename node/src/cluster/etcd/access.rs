//! The file that says how a node reaches etcd. It lies in the directory of the node's brick; a node without it uses no etcd.

use crate::directory;
use base::{Error, Kind, Result};
use runtime::real::Directory;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file's name.
pub const FILE: &str = "etcd.json";
/// Its form.
const VERSION: u32 = 1;
/// Longest file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Most endpoints: etcd's own advice is seven members at most, and each may have two addresses.
const ENDPOINTS_MAX: usize = 16;

/// The way to etcd.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    version: u32,
    /// The addresses of its members' clients, each `http://HOST:PORT` or `https://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The file of the authorities that its certificates are of; None: those that the system trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The file of the certificate with which a node comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// The file of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Access {
    /// The way by these endpoints and files, whose paths become absolute: a daemon has another directory. Errors: `Invalid`.
    pub fn new(endpoints: &[String], [ca, cert, key]: [Option<&Path>; 3]) -> Result<Access> {
        let absolute = |path: Option<&Path>| {
            let path = path.map(std::path::absolute).transpose();
            path.map_err(|error| Error::new(Kind::Invalid, "this is no path").with(error))
        };
        let endpoints = endpoints.iter().map(|endpoint| endpoint.trim_end_matches('/').to_string()).collect();
        let access =
            Access { version: VERSION, endpoints, ca: absolute(ca)?, cert: absolute(cert)?, key: absolute(key)? };
        access.check()?;
        Ok(access)
    }
    fn check(&self) -> Result<()> {
        let wrong = |what| Err(Error::new(Kind::Invalid, what));
        if self.endpoints.is_empty() || self.endpoints.len() > ENDPOINTS_MAX {
            return wrong("etcd has 1 to 16 endpoints");
        }
        for endpoint in &self.endpoints {
            let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
            let is_one = host.is_some_and(|host| {
                let (name, port) = host.rsplit_once(':').unwrap_or_default();
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
                !name.is_empty() && name.bytes().all(is_plain) && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            if !is_one {
                let what = "an endpoint of etcd is http://HOST:PORT or https://HOST:PORT";
                return Err(Error::new(Kind::Invalid, what).with(endpoint));
            }
        }
        if self.cert.is_some() != self.key.is_some() {
            return wrong("a certificate and its key go together: give both --etcd-cert and --etcd-key");
        }
        let has_files = self.ca.is_some() || self.cert.is_some();
        if has_files && !self.is_encrypted() {
            return wrong("certificates are for endpoints that begin with https://");
        }
        Ok(())
    }
    /// True if an endpoint is reached over TLS.
    pub fn is_encrypted(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"))
    }
    /// Reads the file in a brick's directory; None: it has none. Errors: `Invalid`, `Newer`; those of reading.
    pub fn read(data: &Directory) -> Result<Option<Access>> {
        let Some(bytes) = directory::read(data, FILE, FILE_BYTES_MAX)? else { return Ok(None) };
        parse(&bytes).map(Some).map_err(|error| error.with(data.path().join(FILE).display()))
    }
    /// Writes the file durably.
    pub fn write(&self, data: &Directory) -> Result<()> {
        directory::replace(data, FILE, self.text().as_bytes())
    }
    fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data is JSON") + "\n"
    }
}

fn parse(bytes: &[u8]) -> Result<Access> {
    let what = "the file that says how to reach etcd is not as Sinter writes it: write it anew with `sinter cluster \
                recover-directory DATA --etcd ENDPOINT`";
    let wrong = |error: serde_json::Error| Error::new(Kind::Invalid, what).with(error);
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(wrong)?;
    if value["version"].as_u64().is_some_and(|version| version > VERSION.into()) {
        return Err(Error::new(Kind::Newer, "the file that says how to reach etcd is of a newer version; upgrade"));
    }
    let access: Access = serde_json::from_value(value).map_err(wrong)?;
    access.check()?;
    Ok(access)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_is_written_reads_back_and_what_is_wrong_is_refused() {
        let scratch = Scratch::new();
        let data = directory::existing(scratch.path()).expect("ours");
        assert_eq!(Access::read(&data), Ok(None));
        let files = ["/a/ca.pem", "/a/cert.pem", "/a/key.pem"].map(|path| Some(Path::new(path)));
        let access = Access::new(&["https://e1:2379/".into(), "https://[::1]:2379".into()], files).expect("right");
        assert_eq!(access.endpoints, ["https://e1:2379", "https://[::1]:2379"]);
        access.write(&data).expect("writable");
        assert_eq!(Access::read(&data), Ok(Some(access)));
        for endpoint in
            ["e1:2379", "http://", "http://e1", "http://e1:0", "http://e1:x", "ftp://e1:1", "http://a/b:1", ""]
        {
            let error = Access::new(&[endpoint.into()], [None; 3]).expect_err(endpoint);
            assert_eq!(error.kind, Kind::Invalid, "{error}");
        }
        assert!(Access::new(&[], [None; 3]).is_err(), "no endpoint");
        let https = ["https://e1:2379".to_string()];
        assert!(Access::new(&https, [None, files[1], None]).is_err(), "no key");
        assert!(Access::new(&["http://e1:2379".into()], files).is_err(), "nothing is encrypted");
        for text in ["", "{}", "[]", "{\"version\": 1, \"endpoints\": [\"http://e:1\"], \"more\": 1}"] {
            assert_eq!(parse(text.as_bytes()).expect_err(text).kind, Kind::Invalid);
        }
        assert_eq!(parse(b"{\"version\": 2}").expect_err("newer").kind, Kind::Newer);
    }
}
