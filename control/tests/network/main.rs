//! The network side of a brick and its clients, from outside: who may come, what survives, what TLS makes of it.

mod admit;
mod crash;
mod damage;
mod kill;
mod membership;
mod scratch;
mod servers;
mod tls;
mod world;

use base::ids::VolumeId;
use control::*;

/// A time in January 2027, in seconds since 1970.
pub const NOW_S: u64 = 1_800_000_000;
pub const DAY_S: u64 = 86_400;
pub const CLUSTER: Uuid = Uuid([0xc1; 16]);
pub const BRICK: Uuid = Uuid([0xb1; 16]);

pub fn grant(volume: u32) -> Grant {
    Grant { volume: VolumeId(volume), read_only: false, root_squash: false }
}

/// A wish for a token of one use for these volumes.
pub fn wish(volumes: &[u32]) -> Wish {
    let rights = Rights::new(volumes.iter().map(|&volume| grant(volume))).expect("some volumes");
    Wish { role: Role::Client, rights, uses: 1, life_s: TOKEN_LIFE_S }
}

pub fn addresses() -> Vec<Address> {
    ["10.0.0.5:7400", "[fd00::5]:7400", "store.example:7400"].map(|text| text.parse().expect("an address")).to_vec()
}

/// The server's name and addresses.
pub fn place() -> (ClientName, Vec<Address>) {
    ("store".parse().expect("a name"), addresses())
}

/// A new network side in a world of its own.
pub fn network(world: &world::World) -> Network<world::World> {
    Network::create(world.clone(), CLUSTER, BRICK, NOW_S).expect("an empty directory")
}

/// The network side of the brick again, after its end.
pub fn reopen<F: Files>(files: F) -> base::Result<Network<F>> {
    Network::open(files, BRICK)
}

/// A token for a volume, whose secret is made of `seed`.
pub fn token<F: Files>(network: &mut Network<F>, seed: u8, volumes: &[u32]) -> Token {
    network.create_token(wish(volumes), Secret([seed; 16]), place(), NOW_S).expect("within bounds")
}

/// A wish for a server's token of one use.
pub fn server_wish() -> Wish {
    Wish { role: Role::Server, rights: Rights::none(), ..wish(&[1]) }
}

/// A token for a server, whose secret is made of `seed`.
pub fn server_token<F: Files>(network: &mut Network<F>, seed: u8) -> Token {
    network.create_token(server_wish(), Secret([seed; 16]), place(), NOW_S).expect("within bounds")
}

/// The statement of the server of this number about itself.
pub fn server(number: u8) -> ServerWish {
    let address = |port: u16| format!("10.0.1.{number}:{port}").parse().expect("an address");
    let name = format!("s{number}").parse().expect("a name");
    ServerWish { brick: Uuid([number; 16]), name, clients: address(7400), peers: address(7401) }
}

pub fn request(key: &Key) -> Vec<u8> {
    certificates::make_request(key).expect("a whole key")
}

pub fn key() -> Key {
    Key::generate().expect("the kernel has random numbers")
}

pub fn identity(chain: &Chain) -> Identity {
    chain.certificate.identity().expect("of our making")
}
