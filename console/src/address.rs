//! The addresses at which figures are served. Promises that none of them can be reached from another machine: what is served
//! is neither encrypted nor asks who reads it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The addresses to serve at; none by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// Address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// Address of the console. It may be the same.
    pub console: Option<SocketAddr>,
}

/// Reads HOST:PORT. Errors: it is none; other machines could reach it.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let named = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let address = match named {
        Some(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
        None => {
            text.parse().map_err(|_| "not HOST:PORT with a loopback address, such as 127.0.0.1:9470".to_string())?
        }
    };
    if !address.ip().is_loopback() {
        let (what, port) = (address.ip(), address.port());
        return Err(format!(
            "{what} can be reached from other machines, and figures are served in the clear to whoever asks: give \
             127.0.0.1:{port}, and let an SSH tunnel or a proxy with TLS and passwords bring them to others"
        ));
    }
    Ok(address)
}

/// True if a request's Host header names this machine's loopback interface. A page of somebody else's whose name was made to
/// lead here (DNS rebinding) has its own name there.
pub fn is_own_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_understood() {
        for (text, address) in [
            ("127.0.0.1:9470", "127.0.0.1:9470"),
            ("localhost:80", "127.0.0.1:80"),
            ("127.9.9.9:1", "127.9.9.9:1"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(parse(text), Ok(address.parse().expect("an address")), "{text}");
        }
    }

    #[test]
    fn others_are_refused_with_a_way_out() {
        for text in ["0.0.0.0:9470", "[::]:9470", "192.0.2.1:9470", "[::ffff:192.0.2.1]:9470"] {
            let why = parse(text).expect_err(text);
            assert!(why.contains("127.0.0.1:9470") && why.contains("SSH"), "{text}: {why}");
        }
        for text in ["", "9470", ":9470", "127.0.0.1", "localhost", "localhost:x", "example.org:80", "127.0.0.1:65536"]
        {
            let why = parse(text).expect_err(text);
            assert!(why.contains("not HOST:PORT"), "{text}: {why}");
        }
    }

    #[test]
    fn hosts_of_others_are_told_apart() {
        for host in ["localhost", "LOCALHOST:9470", "127.0.0.1", "127.0.0.1:9470", "[::1]", "[::1]:9470"] {
            assert!(is_own_host(host), "{host}");
        }
        for host in
            ["", "example.org", "localhost.example.org:9470", "127.0.0.1.example.org", "192.0.2.1", "[2001:db8::1]"]
        {
            assert!(!is_own_host(host), "{host}");
        }
    }
}
