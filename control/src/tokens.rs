//! Tokens: a text by which somebody joins, `sinter1.` and letters. It says what the servers are called and where they
//! are, which CA is theirs, and a secret. Promises that a token that was mistyped or cut is told apart from one that the server does not know. Of the
//! secret a server stores only the hash.

use crate::certificates::{Certificate, Hash};
use crate::identity::{ClientName, Uuid};
use base::checksum::crc32c;
use base::{Error, Kind, Result};
use data_encoding::{DecodeKind, Encoding, Specification};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "sinter1.";
/// Most addresses of a token.
pub const ADDRESSES_MAX: usize = 8;
/// Longest address in bytes: a name of DNS, a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 253 + 6;
/// Longest text of a token that is looked at; a whole one has less.
const LETTERS_MAX: usize = 4096;

/// The secret of a token: 128 bits of the kernel's random numbers. Debug does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// The part of it that a server stores.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.0)
    }
}
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }
}

/// The part that the bearer of a token may join as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A client that mounts volumes.
    Client,
    /// A server, with a brick of its own.
    Server,
}

impl Role {
    fn byte(self) -> u8 {
        match self {
            Role::Client => 1,
            Role::Server => 2,
        }
    }
    fn of_byte(byte: u8) -> Result<Role> {
        match byte {
            1 => Ok(Role::Client),
            2 => Ok(Role::Server),
            _ => Err(newer()),
        }
    }
}

/// The place of a server: `HOST:PORT`, where a host is a name, or an address of IPv4, or one of IPv6 in brackets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Address(String);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl From<Address> for String {
    fn from(address: Address) -> String {
        address.0
    }
}
impl TryFrom<String> for Address {
    type Error = Error;
    fn try_from(text: String) -> Result<Address> {
        text.parse()
    }
}
impl FromStr for Address {
    type Err = Error;
    /// Errors: `Invalid`.
    fn from_str(text: &str) -> Result<Address> {
        let is_host = |host: &str| {
            let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            match inner {
                Some(inner) => inner.parse::<core::net::Ipv6Addr>().is_ok(),
                None => !host.is_empty() && host.bytes().all(fits),
            }
        };
        let parts = text.rsplit_once(':').filter(|(host, _)| is_host(host));
        let port = parts.filter(|(_, port)| !port.starts_with('+')).and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none_or(|port| port == 0) || text.len() > ADDRESS_BYTES_MAX {
            let what = "an address is HOST:PORT, such as 10.0.0.5:7400 or [fd00::5]:7400";
            return Err(Error::new(Kind::Invalid, what).with(text.escape_debug()));
        }
        Ok(Address(text.to_string()))
    }
}

/// A token, as `sinter token create` prints it. It is a secret: whoever has it may join. Debug does not show that part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// The cluster that it leads to.
    pub cluster: Uuid,
    /// The SHA-256 of the CA's certificate, which the bearer checks before it sends anything.
    pub ca: Hash,
    /// The bearer's part.
    pub role: Role,
    /// The secret that shows that the bearer was invited.
    pub secret: Secret,
    /// The servers' addresses: 1 to 8.
    pub addresses: Vec<Address>,
    /// The server's name, by which the client calls the cluster unless it says another one.
    pub name: ClientName,
}

impl Token {
    /// True if this is the CA that the token pins.
    pub fn pins(&self, ca: &Certificate) -> bool {
        ca.hash() == self.ca
    }
    /// The text, `sinter1.` and about 170 letters.
    pub fn to_text(&self) -> String {
        assert!((1..=ADDRESSES_MAX).contains(&self.addresses.len()), "a token leads somewhere");
        let mut bytes = vec![0; 2];
        bytes.extend(self.cluster.0);
        bytes.extend(self.ca.0);
        bytes.push(self.role.byte());
        bytes.extend(self.secret.0);
        bytes.push(self.addresses.len() as u8);
        for address in &self.addresses {
            bytes.extend((address.0.len() as u16).to_le_bytes());
            bytes.extend(address.0.as_bytes());
        }
        bytes.push(self.name.as_str().len() as u8);
        bytes.extend(self.name.as_str().as_bytes());
        let length = bytes.len() + 4;
        bytes[..2].copy_from_slice(&u16::try_from(length).expect("eight addresses and a name are short").to_le_bytes());
        bytes.extend(crc32c(&bytes).to_le_bytes());
        format!("{PREFIX}{}", letters().encode(&bytes))
    }
}

impl FromStr for Token {
    type Err = Error;
    /// Errors: `Invalid` with what is wrong with the text; `Newer`.
    fn from_str(text: &str) -> Result<Token> {
        let text = text.trim();
        let Some(body) = text.get(..PREFIX.len()).filter(|start| start.eq_ignore_ascii_case(PREFIX)) else {
            return Err(no_token(text));
        };
        let body = &text[body.len()..];
        if body.len() > LETTERS_MAX {
            return Err(Error::new(Kind::Invalid, "the token is too long: copy it again, alone"));
        }
        check_whole(body)?;
        let bytes = letters().decode(body.as_bytes()).map_err(|wrong| not_letters(body, wrong))?;
        let (fields, crc) = bytes.split_at(bytes.len() - 4);
        if crc32c(fields).to_le_bytes() != crc {
            return Err(Error::new(
                Kind::Invalid,
                "a letter of the token is wrong (its checksum differs): copy it again",
            ));
        }
        fields_of(&fields[2..]).ok_or_else(newer)?
    }
}

/// Refuses a text that has not as many letters as its first ones say.
fn check_whole(body: &str) -> Result<()> {
    let cut = "the token is cut short: copy all of it, in one line";
    let Some(start) = body.as_bytes().get(..8) else {
        return Err(Error::new(Kind::Invalid, cut));
    };
    let head = letters().decode(start).map_err(|wrong| not_letters(body, wrong))?;
    let bytes = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let wanted = letters().encode_len(bytes);
    if body.len() < wanted {
        return Err(
            Error::new(Kind::Invalid, cut).with(format!("{} of its {wanted} letters are missing", wanted - body.len()))
        );
    }
    if body.len() > wanted || bytes < 4 {
        // An early letter may be wrong, too.
        let what = "the token has more letters than it says, or a wrong one at its start: copy it again, alone";
        return Err(Error::new(Kind::Invalid, what));
    }
    Ok(())
}

/// The fields of a token whose checksum is right; None if they are of another layout.
fn fields_of(mut rest: &[u8]) -> Option<Result<Token>> {
    let cluster = Uuid(*rest.split_off(..16)?.as_array()?);
    let ca = Hash(*rest.split_off(..32)?.as_array()?);
    let role = *rest.split_off_first()?;
    let secret = Secret(*rest.split_off(..16)?.as_array()?);
    let count = usize::from(*rest.split_off_first()?);
    let mut addresses = Vec::new();
    for _ in 0..count {
        let length = u16::from_le_bytes(*rest.split_off(..2)?.as_array()?);
        addresses.push(std::str::from_utf8(rest.split_off(..usize::from(length))?).ok()?.parse().ok()?);
    }
    let length = usize::from(*rest.split_off_first()?);
    let name = std::str::from_utf8(rest.split_off(..length)?).ok()?.parse().ok()?;
    if !rest.is_empty() || !(1..=ADDRESSES_MAX).contains(&count) {
        return None;
    }
    Some(Role::of_byte(role).map(|role| Token { cluster, ca, role, secret, addresses, name }))
}

fn no_token(text: &str) -> Error {
    let version = text.strip_prefix("sinter").and_then(|rest| rest.split_once('.')).map(|(version, _)| version);
    if version.is_some_and(|version| version.parse::<u32>().is_ok()) {
        return newer();
    }
    Error::new(
        Kind::Invalid,
        "this is no token: one begins with `sinter1.`; `sinter token create` on the server makes one",
    )
}

fn newer() -> Error {
    Error::new(Kind::Newer, "a newer Sinter made this token: update this one, or make the token with this version")
}

fn not_letters(body: &str, wrong: data_encoding::DecodeError) -> Error {
    match wrong.kind {
        DecodeKind::Symbol => {
            let letter = body.get(wrong.position..).and_then(|rest| rest.chars().next());
            let letter = letter.map_or(String::new(), |letter| letter.escape_debug().to_string());
            let place = PREFIX.len() + wrong.position + 1;
            let what = "the token has a character that no token has: copy it again";
            Error::new(Kind::Invalid, what).with(format!("`{letter}` at place {place}"))
        }
        _ => Error::new(Kind::Invalid, "a letter of the token is wrong: copy it again"),
    }
}

/// Base32 (RFC 4648) without padding, in small letters; large ones are read as well.
fn letters() -> Encoding {
    let mut letters = Specification::new();
    letters.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    letters.translate.from.push_str("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    letters.translate.to.push_str("abcdefghijklmnopqrstuvwxyz");
    letters.encoding().expect("32 letters")
}

#[cfg(test)]
mod tests;
