//! The side of who joins, a client or a server: `NAME.toml` says where a cluster is, which CA is its own, and has the client's certificate; `NAME.key`
//! has its key. Promises that a crash leaves the old or the new of each; that a key, once made, stays, so that who asks
//! again after a lost answer is the same; that nothing is written which the token does not vouch for.

use crate::certificates::{self, Certificate, Identity, Key};
use crate::directory::Chain;
use crate::files::{Files, read_secret, replace};
use crate::identity::{Bearer, ClientName, Uuid};
use crate::tokens::{ADDRESSES_MAX, Address, Role, Token};
use base::{Error, Kind, Result};
use serde::Deserialize;
use std::fmt::Write;

/// The version of the file's format.
const FORMAT: i64 = 1;
/// Largest file of either kind: ours have 3 KiB.
const FILE_BYTES_MAX: usize = 64 << 10;

/// A cluster that this machine has joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The name of its file, which mounts use: `NAME/VOLUME`.
    pub name: ClientName,
    /// The cluster.
    pub cluster: Uuid,
    /// Its servers' addresses.
    pub addresses: Vec<Address>,
    /// Its CA.
    pub ca: Certificate,
    /// This machine's certificate.
    pub certificate: Certificate,
    /// This machine's key.
    pub key: Key,
}

/// The fields of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    format: i64,
    cluster: String,
    addresses: Vec<String>,
    ca: String,
    certificate: String,
}

/// Just the format, of a file that may have other fields.
#[derive(Deserialize)]
struct Version {
    format: i64,
}

/// A join that has begun: the key is durable, and the request may be sent as often as it takes.
pub struct Joining<'a> {
    files: &'a dyn Files,
    name: ClientName,
    token: Token,
    key: Key,
    /// The request for a certificate (DER), to be sent with the token's secret and the name wanted.
    pub request: Vec<u8>,
}

/// Begins to join as `name.toml`: makes the key, or takes the one of an earlier try. Errors: `Exists` if the file is of another
/// cluster; `Permission` if others may read the key; `Corrupt`; those of writing.
pub fn begin<'a>(files: &'a dyn Files, name: &ClientName, token: Token) -> Result<Joining<'a>> {
    let (config, file) = (config_file(name), key_file(name));
    if let Some(found) = files.read(&config, FILE_BYTES_MAX)? {
        let present = fields(&found.bytes);
        let next = "correct it, or remove it to join anew";
        if present.map_err(|error| error.with(files.shown(&config)).with(next))?.cluster != token.cluster.to_string() {
            let what = "this name leads to another cluster: choose another name, or remove its two files to leave that cluster";
            return Err(Error::new(Kind::Exists, what).with(files.shown(&config)));
        }
    }
    let key = match read_key(files, name)? {
        Some(key) => key,
        None => {
            let key = Key::generate()?;
            replace(files, &file, key.to_pem().as_bytes())?;
            key
        }
    };
    let request = certificates::make_request(&key)?;
    Ok(Joining { files, name: name.clone(), token, key, request })
}

impl Joining<'_> {
    /// The token.
    pub fn token(&self) -> &Token {
        &self.token
    }
    /// Checks the server's answer and writes the file. Errors: `Permission` if the CA is not the token's, or the certificate
    /// not this key's or for another part than the token's; those of writing.
    pub fn finish(self, answer: Chain) -> Result<Membership> {
        let refused = |what| Err(Error::new(Kind::Permission, what));
        let Chain { certificate, ca } = answer;
        if !self.token.pins(&ca) {
            return refused(
                "the server is not the one that made the token: somebody may stand between; nothing was written",
            );
        }
        let Token { cluster, addresses, role, .. } = self.token;
        let membership = Membership { name: self.name, cluster, addresses, ca, certificate, key: self.key };
        membership.check()?;
        if membership.brick()?.is_some() != (role == Role::Server) {
            return refused("the certificate is for another part than the token: nothing was written");
        }
        membership.write(self.files)?;
        Ok(membership)
    }
}

impl Membership {
    /// Reads both files. Errors: `NotFound`, `Permission`, `Corrupt`, `Invalid`, `Newer`, each with the file's name and the
    /// next step.
    pub fn read(files: &dyn Files, name: &ClientName) -> Result<Membership> {
        let file = config_file(name);
        let Some(found) = files.read(&file, FILE_BYTES_MAX)? else {
            let what = "this machine has not joined under this name: sinter client join TOKEN";
            return Err(Error::new(Kind::NotFound, what).with(files.shown(&file)));
        };
        let of_file = |error: Error| error.with(files.shown(&file)).with("correct it, or join again with a new token");
        let fields = fields(&found.bytes).map_err(|error| match error.kind {
            Kind::Newer => error.with(files.shown(&file)),
            _ => of_file(error),
        })?;
        let Some(key) = read_key(files, name)? else {
            let what = "the key of this machine is missing: restore it from a backup, or revoke the client on the server and join \
                        again with a new token";
            return Err(Error::new(Kind::NotFound, what).with(files.shown(&key_file(name))));
        };
        Membership::of_fields(name, fields, key).map_err(of_file)
    }
    /// Takes a renewed certificate, and writes the file. Errors: `Permission` if it is not of this key, cluster and bearer;
    /// those of writing.
    pub fn renew(&mut self, files: &dyn Files, answer: Chain) -> Result<()> {
        let next = Membership { certificate: answer.certificate, ..self.clone() };
        next.check()?;
        if next.identity()?.subject != self.identity()?.subject {
            return Err(Error::new(Kind::Permission, "the answer is for somebody else: nothing was written"));
        }
        if answer.ca != self.ca {
            return Err(Error::new(Kind::Permission, "the answer is of another CA: nothing was written"));
        }
        next.write(files)?;
        *self = next;
        Ok(())
    }
    /// The statement of this machine's certificate: its name at the server, and when it is to be renewed.
    pub fn identity(&self) -> Result<Identity> {
        self.certificate.identity()
    }
    /// The brick as whose server this machine has joined; None if it is a client.
    pub fn brick(&self) -> Result<Option<Uuid>> {
        match self.identity()?.subject.bearer {
            Bearer::Brick(brick) => Ok(Some(brick)),
            Bearer::Client(_) => Ok(None),
        }
    }
    fn of_fields(name: &ClientName, fields: Fields, key: Key) -> Result<Membership> {
        let addresses: Vec<Address> = fields.addresses.iter().map(|text| text.parse()).collect::<Result<_>>()?;
        if !(1..=ADDRESSES_MAX).contains(&addresses.len()) {
            return Err(Error::new(Kind::Invalid, "1 to 8 addresses are needed"));
        }
        let (ca, certificate) = (Certificate::of_pem(&fields.ca)?, Certificate::of_pem(&fields.certificate)?);
        let cluster = fields.cluster.parse()?;
        let membership = Membership { name: name.clone(), cluster, addresses, ca, certificate, key };
        membership.check().map(|()| membership)
    }
    /// Refuses parts that don't belong together.
    fn check(&self) -> Result<()> {
        self.certificate.check_signed_by(&self.ca)?;
        if self.identity()?.subject.cluster != self.cluster || self.certificate.public_key()? != self.key.public()? {
            let what = "the certificate is not one of this key for this cluster: join again, with a new token";
            return Err(Error::new(Kind::Permission, what));
        }
        Ok(())
    }
    fn write(&self, files: &dyn Files) -> Result<()> {
        let quoted: Vec<String> = self.addresses.iter().map(|address| format!("\"{address}\"")).collect();
        let command = if self.brick()?.is_some() { "sinter cluster join" } else { "sinter client join" };
        let mut text =
            format!("# A cluster that this machine has joined; `{command}` wrote it. The addresses may be changed.\n");
        let fields = [
            ("cluster", self.cluster.to_string()),
            ("ca", self.ca.to_pem()),
            ("certificate", self.certificate.to_pem()),
        ];
        writeln!(text, "format = {FORMAT}\naddresses = [{}]", quoted.join(", ")).expect("a string takes all");
        for (name, value) in fields {
            let quote = if value.contains('\n') { "\"\"\"" } else { "\"" };
            writeln!(text, "{name} = {quote}{value}{quote}").expect("a string takes all");
        }
        replace(files, &config_file(&self.name), text.as_bytes())
    }
}

fn fields(bytes: &[u8]) -> Result<Fields> {
    let wrong =
        |error: toml::de::Error| Error::new(Kind::Invalid, "the file can't be read").with(error.to_string().trim_end());
    let text = std::str::from_utf8(bytes).map_err(|_| Error::new(Kind::Invalid, "the file is no text"))?;
    let version: Version = toml::from_str(text).map_err(wrong)?;
    if version.format != FORMAT {
        let what = "another version of Sinter wrote the file: install that version, or join again with a new token";
        return Err(Error::new(Kind::Newer, what).with(format_args!("format {}", version.format)));
    }
    let fields: Fields = toml::from_str(text).map_err(wrong)?;
    assert_eq!(fields.format, version.format, "one text has one format");
    Ok(fields)
}

fn read_key(files: &dyn Files, name: &ClientName) -> Result<Option<Key>> {
    let file = key_file(name);
    let Some(bytes) = read_secret(files, &file, FILE_BYTES_MAX)? else { return Ok(None) };
    let key = std::str::from_utf8(&bytes)
        .map_err(|_| Error::new(Kind::Corrupt, "the key's file is no text"))
        .and_then(Key::of_pem);
    let next =
        "restore it from a backup, or remove it, revoke the client on the server and join again with a new token";
    key.map(Some).map_err(|error| error.with(files.shown(&file)).with(next))
}

fn config_file(name: &ClientName) -> String {
    format!("{name}.toml")
}

fn key_file(name: &ClientName) -> String {
    format!("{name}.key")
}
