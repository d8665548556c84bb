//! The files and facts of a brick's own identity on the network.

use crate::directory::remove_tree;
use crate::failure::{Exit, Failure};
use base::{Error, Kind, Result};
use control::identity::NAME_BYTES_MAX;
use control::{ClientName, Held, Network, Uuid};
use runtime::real::Directory;
use rustix::rand::{GetRandomFlags, getrandom};
use std::net::{IpAddr, Ipv6Addr};

/// The directory in the brick's.
pub const DIRECTORY: &str = "network";
/// The same while it is made.
const DIRECTORY_NEW: &str = "network.new";
/// The port of servers and clients that say no other.
pub const PORT: u16 = 7400;

/// Opens the identity of a brick, or makes it if there is none: whole, or not at all.
pub fn open(data: &Directory, brick: Uuid, cluster: Uuid, now_s: u64) -> Result<Network<Held>> {
    let held = |name: &str| Held::lock(data.child(name)?, |from, to| std::fs::rename(from, to));
    if data.at(DIRECTORY).symlink_metadata().is_err() {
        let failed = |error: std::io::Error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Error::os("the brick's identity for the network can't be made", errno).with(data.path().display())
        };
        remove_tree(&data.at(DIRECTORY_NEW))
            .and_then(|()| std::fs::create_dir(data.at(DIRECTORY_NEW)))
            .map_err(failed)?;
        drop(Network::create(held(DIRECTORY_NEW)?, cluster, brick, now_s)?);
        std::fs::rename(data.at(DIRECTORY_NEW), data.at(DIRECTORY)).and_then(|()| data.sync()).map_err(failed)?;
    }
    Network::open(held(DIRECTORY)?, brick)
}

/// Random bytes of the kernel: 128 bits.
pub fn secret() -> std::result::Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(16) => Ok(bytes),
        _ => Err(Failure::new(Exit::Host, "the kernel gives no random numbers")),
    }
}

/// The name of this machine as a name of a server or client.
pub fn own_name() -> Result<ClientName> {
    fit(&std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()).parse()
}

/// A name that fits; `sinter` if nothing of it does.
pub fn fit(name: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let name: String = name.trim().chars().map(|letter| if fits(letter) { letter } else { '-' }).collect();
    let name = name.trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    if name.is_empty() { "sinter".to_string() } else { name.to_string() }
}

/// An address with its port: `HOST`, `HOST:PORT`, or an address of IPv6 with or without brackets.
pub fn with_port(text: &str) -> String {
    if text.parse::<Ipv6Addr>().is_ok() {
        return format!("[{text}]:{PORT}");
    }
    let has_port = text.rsplit_once(':').is_some_and(|(host, _)| !host.starts_with('[') || host.ends_with(']'));
    if has_port { text.to_string() } else { format!("{text}:{PORT}") }
}

/// The addresses of this machine that others may reach, of IPv4 first; those of IPv6 too if `with_ipv6`.
pub fn own_hosts(with_ipv6: bool) -> Result<Vec<IpAddr>> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut hosts: Vec<IpAddr> = local_of_ipv4(&read("/proc/net/fib_trie")).collect();
    if with_ipv6 {
        hosts.extend(of_ipv6(&read("/proc/net/if_inet6")));
    }
    hosts.retain(|host| !host.is_loopback());
    let mut seen = std::collections::BTreeSet::new();
    hosts.retain(|host| seen.insert(*host));
    match hosts.is_empty() {
        true => Err(Error::new(
            Kind::Host,
            "this machine has no address but loopback: say which one clients use, with --address",
        )),
        false => Ok(hosts),
    }
}

/// The addresses of the kernel's table of routes that are its own: each stands in the line before one with `host LOCAL`.
fn local_of_ipv4(table: &str) -> impl Iterator<Item = IpAddr> {
    let lines = table.lines().zip(table.lines().skip(1));
    let own = lines.filter(|(_, next)| next.contains("/32 host LOCAL"));
    own.filter_map(|(line, _)| line.trim().strip_prefix("|--")?.trim().parse().ok())
}

/// The addresses of the kernel's list of IPv6 that are not only for one link.
fn of_ipv6(list: &str) -> impl Iterator<Item = IpAddr> {
    let parsed = list.lines().filter_map(|line| u128::from_str_radix(line.split_whitespace().next()?, 16).ok());
    parsed.map(Ipv6Addr::from_bits).filter(|address| !address.is_unicast_link_local()).map(IpAddr::V6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_a_port() {
        for (text, whole) in [
            ("a", "a:7400"),
            ("a:1", "a:1"),
            ("10.0.0.5", "10.0.0.5:7400"),
            ("::1", "[::1]:7400"),
            ("[::1]", "[::1]:7400"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(with_port(text), whole);
        }
    }

    #[test]
    fn names_of_hosts_are_made_fit() {
        for (host, name) in [("n1\n", "n1"), ("-a b.c_", "a-b.c_"), ("", "sinter"), ("\u{e4}", "sinter")] {
            assert_eq!(fit(host), name);
        }
        let long = fit(&"x".repeat(300));
        assert!(long.parse::<ClientName>().is_ok(), "{long}");
    }

    #[test]
    fn addresses_of_this_machine_are_found() {
        let table = "Main:\n  +-- 10.0.0.0/24 2 0 2\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(local_of_ipv4(table).collect::<Vec<_>>(), ["10.0.0.5".parse::<IpAddr>().expect("an address")]);
        let list =
            "fd000000000000000000000000000005 02 40 00 80 eth0\nfe800000000000000000000000000001 02 40 20 80 eth0\n";
        assert_eq!(of_ipv6(list).collect::<Vec<_>>(), ["fd00::5".parse::<IpAddr>().expect("an address")]);
    }
}
