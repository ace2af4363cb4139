//! The loopback: both families of addresses, the name `localhost`, the ports that bus and store shall have, and variables
//! that send elsewhere what is meant for it.
//!
//! In: the environment, /etc/hosts, sockets that are opened for a moment. Out: findings. Not here: what is beyond this
//! machine; a mesh's parts on one machine never speak to each other over more than its loopback.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::check::{Finding, Tried, expect, wrong};
use crate::machine::ports::{self, Port};
use crate::output::Code;

/// The loopback answers in microseconds.
const SOON: Duration = Duration::from_secs(1);

/// Variables that name a proxy for plain HTTP, which is what is spoken on the loopback.
const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// What in the environment would send to a proxy what is meant for this machine's loopback.
pub(super) fn proxies(environment: &BTreeMap<String, String>) -> Finding {
    let check = expect("no proxy for 127.0.0.1");
    let said = |name: &&str| environment.get(*name).is_some_and(|value| !value.is_empty());
    let proxies: Vec<&str> = PROXIES.into_iter().filter(|name| said(name)).collect();
    if proxies.is_empty() {
        return check.met("no proxy is set");
    }
    let spared = ["no_proxy", "NO_PROXY"].iter().filter_map(|name| environment.get(*name));
    if spared.flat_map(|list| list.split(',')).any(|entry| spares_loopback(entry.trim())) {
        return check.met(format!("{}, and not for 127.0.0.1", proxies.join(", ")));
    }
    check.warned(wrong(
        Code::Usage,
        format!(
            "{} would send what is meant for 127.0.0.1 to a proxy: mesh itself takes no notice of it, but docker, curl and \
             whatever else speaks to the store do",
            proxies.join(", ")
        ),
        proxies.iter().map(|name| format!("{name} is set, no_proxy leaves 127.0.0.1 out")).collect::<Vec<_>>().join(", "),
        "export no_proxy=127.0.0.1,localhost,::1",
    ))
}

/// `127.0.0.1`, a network that it is in, or everything.
fn spares_loopback(entry: &str) -> bool {
    let in_network = |entry: &str| {
        let (network, bits) = entry.split_once('/')?;
        let (network, bits): (Ipv4Addr, u32) = (network.parse().ok()?, bits.parse().ok()?);
        let shift = 32_u32.checked_sub(bits)?;
        let part = |address: Ipv4Addr| u64::from(u32::from(address)) >> shift;
        Some(part(network) == part(Ipv4Addr::LOCALHOST))
    };
    entry == "*" || entry == "127.0.0.1" || in_network(entry) == Some(true)
}

/// What /etc/hosts says `localhost` is.
pub(super) fn localhost(hosts: &str) -> Finding {
    let check = expect("localhost to be 127.0.0.1 in /etc/hosts");
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let named = lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case("localhost")).then_some(address)
    });
    let addresses: Vec<IpAddr> = named.collect();
    let texts = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let warning = |what: &str| {
        let found = if texts.is_empty() { "no line".to_owned() } else { texts.clone() };
        wrong(Code::Usage, what, found, "put the line \"127.0.0.1 localhost\" into /etc/hosts")
    };
    if addresses.iter().any(|address| !address.is_loopback()) {
        return check.warned(warning("/etc/hosts has localhost at an address that is not the loopback's"));
    }
    if !addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)) {
        let what = "localhost is not 127.0.0.1, where bus and store listen: what asks for localhost will not find them";
        return check.warned(warning(what));
    }
    check.met(texts)
}

/// A connection over 127.0.0.1, with a byte through it.
pub(super) fn try_ipv4() -> Tried {
    match carry_a_byte() {
        Ok(()) => Tried::Worked("a connection carried what was sent".to_owned()),
        Err(error) => Tried::Failed(error.to_string()),
    }
}

fn carry_a_byte() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect_timeout(&listener.local_addr()?, SOON)?;
    let (mut receiver, _) = listener.accept()?;
    receiver.set_read_timeout(Some(SOON))?;
    sender.write_all(b"m")?;
    receiver.read_exact(&mut [0])
}

/// All of a mesh's parts meet there.
pub(super) fn ipv4(tried: &Tried) -> Finding {
    expect("connections over 127.0.0.1").tried(tried, |why| {
        let what = "the IPv4 loopback does not carry connections";
        wrong(
            Code::LoopbackUnusable,
            what,
            why,
            "bring it up (ip link set lo up), and let the firewall pass what is on lo",
        )
    })
}

/// Whether a port of the IPv6 loopback can be had; none where the machine has no IPv6.
pub(super) fn look_ipv6(port: u16) -> Option<Port> {
    match ports::look_at(IpAddr::V6(Ipv6Addr::LOCALHOST), port) {
        Port::NotGiven(_) => None,
        other => Some(other),
    }
}

/// Bus and store listen at 127.0.0.1 alone. Where `localhost` is ::1 first, whoever is there is asked in their place.
pub(super) fn ipv6(ports: &[(u16, Option<Port>)]) -> Finding {
    let check = expect("nobody else at our ports of ::1");
    if !ports.is_empty() && ports.iter().all(|(_, port)| port.is_none()) {
        return check.met("no IPv6 on this machine, and nothing of a mesh needs it");
    }
    let held: Vec<String> = ports
        .iter()
        .filter_map(|(number, port)| match port {
            Some(Port::Held(holder)) => {
                Some(format!("[::1]:{number} is held by {}", ports::holder_text(holder.as_ref())))
            }
            _ => None,
        })
        .collect();
    if held.is_empty() {
        return check.met("they are free");
    }
    check.warned(wrong(
        Code::PortTaken,
        format!("{}: what asks for localhost may get there instead of to the mesh", held.join(", ")),
        held.join(", "),
        "end what holds it, choose another port, or say 127.0.0.1 where you would say localhost",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_proxy_is_right_where_the_loopback_is_spared() {
        let state = |no_proxy: &str| {
            proxies(&environment(&[("HTTP_PROXY", "http://proxy:3128"), ("no_proxy", no_proxy)])).state
        };
        for spared in ["127.0.0.1", "a, 127.0.0.1", "127.0.0.0/8", "*", "0.0.0.0/0"] {
            assert_eq!(state(spared), State::Passed, "{spared}");
        }
        for not in ["", "localhost", "10.0.0.0/8", "127.0.0.1/x", "127.0.0.1/33"] {
            assert_eq!(state(not), State::Warned, "{not}");
        }
        assert_eq!(proxies(&environment(&[("https_proxy", "http://proxy:3128")])).state, State::Passed);
    }

    #[test]
    fn localhost_may_have_both_addresses() {
        assert_eq!(
            localhost("127.0.0.1 localhost # here\n::1 localhost ip6-localhost\n").state,
            State::Passed
        );
        assert_eq!(localhost("::1 localhost\n").state, State::Warned);
        assert_eq!(localhost("10.0.0.1 localhost\n127.0.0.1 localhost\n").state, State::Warned);
        assert_eq!(localhost("# 127.0.0.1 localhost\n").state, State::Warned);
    }

    #[test]
    fn the_loopback_of_this_machine_carries_a_byte() {
        assert_eq!(ipv4(&try_ipv4()).state, State::Passed);
    }

    #[test]
    fn somebody_at_our_port_of_the_other_family_is_named() {
        let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else { return };
        let port = listener.local_addr().unwrap().port();
        let finding = ipv6(&[(port, look_ipv6(port))]);
        assert_eq!(finding.state, State::Warned);
        assert!(finding.found.contains(&format!("(pid {})", std::process::id())), "{finding:?}");
        assert_eq!(ipv6(&[(port, None)]).state, State::Passed);
    }
}
