//! The command line of a brick that listens, of tokens and of clients.

use super::{Shown, volume_name};
use clap::{Args, Subcommand, ValueEnum, value_parser};
use control::ClientName;
use control::directory::TOKEN_LIFE_S_MAX;
use std::path::PathBuf;
use wire::tls::Encryption;

/// Most volumes of a token, and most addresses.
const USES_MAX: i64 = control::state::USES_MAX as i64;

/// The wish of one side for what goes over the network.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WireEncryption {
    /// Everything is encrypted
    #[default]
    On,
    /// Contents go in the clear, safe from changes, if the other side has `off` too
    Off,
}

impl WireEncryption {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            WireEncryption::On => "on",
            WireEncryption::Off => "off",
        }
    }
}

impl From<WireEncryption> for Encryption {
    fn from(wish: WireEncryption) -> Encryption {
        match wish {
            WireEncryption::On => Encryption::On,
            WireEncryption::Off => Encryption::Off,
        }
    }
}

/// The address at which a daemon serves clients of other machines.
#[derive(Args, Debug, Clone, Default)]
pub struct Listen {
    /// Serve clients of other machines at this address, HOST:PORT or HOST, port 7400 unless said; 0.0.0.0 is all of IPv4, [::] all [default: nowhere]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub listen: Option<String>,
    /// Name by which clients call this server: 1 to 64 letters, digits, dots, dashes and underscores [default: the host's name]
    #[arg(long, value_name = "NAME", value_parser = client_name)]
    pub name: Option<String>,
    /// Let contents go unencrypted to clients that have `off` too: for networks that are separated [default: on]
    #[arg(long, value_name = "WISH")]
    pub wire_encryption: Option<WireEncryption>,
}

/// `sinter token`.
#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// Make a token, with which a machine joins as a client
    Create(TokenCreate),
    /// List the tokens, without their secrets
    List(Shown),
    /// Take a token back; who has joined with it stays
    Revoke(TokenRevoke),
}

/// `sinter token create`.
#[derive(Args, Debug)]
pub struct TokenCreate {
    /// Directory of the brick; its daemon must be running with --listen
    pub data: PathBuf,
    /// Volumes that the client may mount: 1 to 256 names of 1 to 63 bytes [default: none, they must be given]
    #[arg(long, value_name = "NAME", value_parser = volume_name, num_args = 1.., required = true)]
    pub volume: Vec<String>,
    /// Refuse changes [default: the client may change the volumes]
    #[arg(long)]
    pub read_only: bool,
    /// Have the superuser of the client's machine count as nobody [default: off]
    #[arg(long)]
    pub root_squash: bool,
    /// Time for which the token works, 1s to 30d: a number of seconds, or with m, h or d of minutes, hours or days
    #[arg(long, value_name = "TIME", value_parser = life, default_value = "24h")]
    pub ttl: u64,
    /// Number of machines that may join with it (a count), 1 to 1024
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=USES_MAX), default_value_t = 1)]
    pub uses: u32,
    /// Addresses under which clients reach this server, 1 to 8 of HOST:PORT or HOST [default: that of --listen, or this machine's]
    #[arg(long, value_name = "ADDRESS", value_parser = address, num_args = 1..)]
    pub address: Vec<String>,
    /// Print JSON [default: the token and the next command]
    #[arg(long)]
    pub json: bool,
}

/// `sinter token revoke`.
#[derive(Args, Debug)]
pub struct TokenRevoke {
    /// Directory of the brick; its daemon must be running with --listen
    pub data: PathBuf,
    /// The token's id, as `sinter token list` has it
    pub id: String,
    /// Print JSON [default: a line]
    #[arg(long)]
    pub json: bool,
}

/// `sinter client`.
#[derive(Subcommand, Debug)]
pub enum ClientCommand {
    /// Let this machine join a server with a token, as a client
    Join(ClientJoin),
    /// List a brick's clients, their rights, and what they have mounted
    List(Shown),
    /// Refuse a client from now on, and end what it has mounted
    Revoke(ClientRevoke),
}

/// `sinter client join`.
#[derive(Args, Debug)]
pub struct ClientJoin {
    /// The token, as `sinter token create` printed it on the server; `-`: a line of standard input
    pub token: String,
    /// Name by which this machine calls the server, and of the files: 1 to 64 letters, digits, dots, dashes and underscores [default: the server's own]
    #[arg(long, value_name = "NAME", value_parser = client_name)]
    pub name: Option<String>,
    /// Name by which the server calls this machine: 1 to 64 letters, digits, dots, dashes and underscores [default: the host's name]
    #[arg(long = "as", value_name = "CLIENT", value_parser = client_name)]
    pub client: Option<String>,
    /// Directory for the files
    #[arg(long, value_name = "DIR", default_value = crate::remote::MEMBERSHIPS)]
    pub directory: PathBuf,
    /// Print JSON [default: the next command]
    #[arg(long)]
    pub json: bool,
}

/// `sinter client revoke`.
#[derive(Args, Debug)]
pub struct ClientRevoke {
    /// Directory of the brick; its daemon must be running with --listen
    pub data: PathBuf,
    /// The client's name, as `sinter client list` has it
    pub name: String,
    /// Print JSON [default: a line]
    #[arg(long)]
    pub json: bool,
}

/// Reads HOST:PORT or HOST; the port is filled in.
pub fn address(text: &str) -> Result<String, String> {
    let whole = crate::network::with_port(text);
    let checked: Result<control::Address, _> = whole.parse();
    match (checked, whole.rsplit_once(':')) {
        (Ok(_), _) => Ok(whole),
        // Port 0 is any free one, for tests.
        (Err(_), Some((host, "0"))) if format!("{host}:1").parse::<control::Address>().is_ok() => Ok(whole),
        (Err(error), _) => Err(error.to_string()),
    }
}

/// Reads a wish for what goes over the network.
pub fn wire_encryption(text: &str) -> Result<WireEncryption, String> {
    WireEncryption::from_str(text, false).map_err(|_| "must be on or off".to_string())
}

/// Reads a name of a server or a client.
pub fn client_name(text: &str) -> Result<String, String> {
    text.parse::<ClientName>().map(|name| name.to_string()).map_err(|error| error.what.to_string())
}

/// Reads a time in seconds.
fn life(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(digits) => (digits, &text[digits.len()..]),
        None => (text, "s"),
    };
    let seconds = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => 1,
    };
    let time = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    let within = time.filter(|time| (1..=TOKEN_LIFE_S_MAX).contains(time));
    within.ok_or_else(|| "must be a time, 1s to 30d, such as 24h".to_string())
}
