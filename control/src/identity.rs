//! Names of brick, cluster and client, and the URI by which a certificate says whose it is.

use base::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest name of a client in bytes: that of a host.
pub const NAME_BYTES_MAX: usize = 64;
/// The URI's scheme.
const SCHEME: &str = "sinter://";

/// A uuid of a cluster or a brick. One server without others is a cluster of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}
impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl FromStr for Uuid {
    type Err = Error;
    /// Reads only what `Display` writes, so that one uuid has one text. Errors: `Invalid`.
    fn from_str(text: &str) -> Result<Uuid> {
        let digits: String = text.chars().filter(|&letter| letter != '-').collect();
        let bytes = data_encoding::HEXLOWER.decode(digits.as_bytes()).ok();
        let uuid = bytes.and_then(|bytes| bytes.try_into().ok()).map(Uuid).filter(|uuid| uuid.to_string() == text);
        uuid.ok_or_else(|| Error::new(Kind::Invalid, "this is no uuid").with(text.escape_debug()))
    }
}

/// A client's name: 1 to 64 letters, digits, dots, dashes and underscores, of which the first is a letter or a digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ClientName(String);

impl ClientName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl FromStr for ClientName {
    type Err = Error;
    /// Errors: `Invalid`.
    fn from_str(text: &str) -> Result<ClientName> {
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !starts || text.len() > NAME_BYTES_MAX || !text.as_bytes().iter().all(fits) {
            let what = "a name has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit: \
                        choose another one";
            return Err(Error::new(Kind::Invalid, what).with(text.escape_debug()));
        }
        Ok(ClientName(text.to_string()))
    }
}

macro_rules! text {
    ($name:ident) => {
        impl From<$name> for String {
            fn from(from: $name) -> String {
                from.to_string()
            }
        }
        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<$name> {
                text.parse()
            }
        }
    };
}
text!(Uuid);
text!(ClientName);
text!(Subject);

/// The bearer of a certificate, as its URI has it: `sinter://CLUSTER/brick/UUID` or `sinter://CLUSTER/client/NAME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// The cluster that vouches for it.
    pub cluster: Uuid,
    /// The one it is within the cluster.
    pub bearer: Bearer,
}

/// A brick or a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bearer {
    /// The server of a brick.
    Brick(Uuid),
    /// A client that joined.
    Client(ClientName),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/", self.cluster)?;
        match &self.bearer {
            Bearer::Brick(uuid) => write!(f, "brick/{uuid}"),
            Bearer::Client(name) => write!(f, "client/{name}"),
        }
    }
}
impl FromStr for Subject {
    type Err = Error;
    /// Errors: `Invalid` if it is no URI of ours, `Newer` if it is of a kind that this version does not know.
    fn from_str(text: &str) -> Result<Subject> {
        let parts: Vec<&str> = text.strip_prefix(SCHEME).unwrap_or_default().split('/').collect();
        let &[cluster, kind, name] = parts.as_slice() else {
            let what = "this is no identity of Sinter, such as sinter://CLUSTER/client/NAME";
            return Err(Error::new(Kind::Invalid, what).with(text.escape_debug()));
        };
        let bearer = match kind {
            "brick" => Bearer::Brick(name.parse()?),
            "client" => Bearer::Client(name.parse()?),
            _ => {
                let what = "a newer Sinter made this identity: update this one";
                return Err(Error::new(Kind::Newer, what).with(text.escape_debug()));
            }
        };
        Ok(Subject { cluster: cluster.parse()?, bearer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_back_and_has_one_text() {
        let cluster = Uuid([0x5a; 16]);
        for bearer in [Bearer::Brick(Uuid([1; 16])), Bearer::Client("c1.Rack-2_a".parse().expect("a name"))] {
            let subject = Subject { cluster, bearer };
            assert_eq!(subject.to_string().parse::<Subject>().expect("ours"), subject);
        }
        let uuid = cluster.to_string();
        for wrong in [uuid.to_uppercase(), uuid.replace('-', ""), uuid[1..].to_string(), format!("{uuid} ")] {
            assert!(wrong.parse::<Uuid>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_uris_are_refused() {
        let uuid = Uuid([7; 16]);
        let client = |name: &str| format!("sinter://{uuid}/client/{name}");
        assert!(client("c1").parse::<Subject>().is_ok());
        let long = "a".repeat(65);
        for name in ["", ".", "-a", "a b", "a/b", "a\u{e4}", "a\n", long.as_str()] {
            assert_eq!(client(name).parse::<Subject>().expect_err(name).kind, Kind::Invalid);
        }
        for text in ["", "sinter://", "https://x/client/c1", &format!("sinter://{uuid}/client"), "sinter://x/client/c1"]
        {
            assert_eq!(text.parse::<Subject>().expect_err(text).kind, Kind::Invalid);
        }
        let newer = format!("sinter://{uuid}/admin/a").parse::<Subject>().expect_err("not yet");
        assert_eq!(newer.kind, Kind::Newer);
    }
}
