//! Ports of the loopback: free, or held by whom.
//!
//! In: a port. Out: whether it can be bound, and the program that holds it, as far as the system says. Not here: who
//! shall have it.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::{fmt, fs, io};

/// A port that is free now.
///
/// # Errors
/// When the system has none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether a port can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Port {
    /// Nobody has it.
    Free,
    /// Somebody has; none where the system does not say who.
    Held(Option<Holder>),
    /// The system does not give it.
    NotGiven(String),
}

/// A program that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub program: String,
    /// Its number.
    pub pid: u32,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.program, self.pid)
    }
}

/// Who holds a port, for people.
#[must_use]
pub fn holder_text(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "a program that the system does not name".to_owned(), ToString::to_string)
}

/// Looks whether a port of the IPv4 loopback can be had.
#[must_use]
pub fn look(port: u16) -> Port {
    look_at(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Looks whether a port of an address can be had.
#[must_use]
pub fn look_at(address: IpAddr, port: u16) -> Port {
    match TcpListener::bind((address, port)) {
        Ok(_) => Port::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Port::Held(holder(address, port)),
        Err(error) => Port::NotGiven(error.to_string()),
    }
}

/// The program that listens on a port, by the kernel's tables.
fn holder(address: IpAddr, port: u16) -> Option<Holder> {
    let mut tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    if address.is_ipv6() {
        tables.reverse();
    }
    let inode = tables.iter().find_map(|table| listening_inode(&fs::read_to_string(table).ok()?, port))?;
    let link = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let pid = process.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let holds =
            |path: std::path::PathBuf| fs::read_link(path).is_ok_and(|to| to.as_os_str() == link.as_str());
        if descriptors.flatten().any(|descriptor| holds(descriptor.path())) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(Holder { program: name.trim().to_owned(), pid: pid.parse().ok()? });
        }
    }
    None
}

/// State 0A is LISTEN: proc_net_tcp(5).
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&wanted) && *fields.get(3)? == "0A";
        listens.then(|| fields.get(9)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_held_names_its_holder() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let Port::Held(holder) = look(port) else { panic!("{port} is held") };
        assert_eq!(holder.unwrap().pid, std::process::id());
        drop(listener);
        assert_eq!(look(port), Port::Free);
    }

    #[test]
    fn only_who_listens_holds_a_port() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:107E 0100007F:D431 01 0:0 0:0 0 0 0 41 1\n   1: 0100007F:107E 00000000:0000 0A 0:0 0:0 0 0 0 42 1\n";
        assert_eq!(listening_inode(table, 4222), Some(42));
        assert_eq!(listening_inode(table, 4223), None);
    }
}
