//! Where a bundle is: a store, a repository in it, and a tag or a digest.
//!
//! In: texts, as people write them. Out: values that can be asked for. Not here: asking. Plain HTTP is for
//! stores on this machine; elsewhere somebody must have said so, and nothing falls back to it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use mesh_protocol::id::{Digest, ResourceName};

/// May a store be spoken to without encryption?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainHttp {
    /// Only a store on this machine: `localhost`, `127.0.0.0/8`, `[::1]`.
    LoopbackOnly,
    /// This one may be, wherever it is.
    Allowed,
}

/// Why a text names nothing in a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found:?} is not valid: expected {expected}")]
pub struct AddressFault {
    /// What the text should have been.
    pub what: &'static str,
    /// The text.
    pub found: String,
    /// What would have been right.
    pub expected: &'static str,
}

/// A store: `host:port`, and how to speak to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreAddress {
    scheme: &'static str,
    authority: String,
}

impl StoreAddress {
    /// The store at `host:port`, with or without a scheme before it.
    ///
    /// # Errors
    /// When it is none, or is to be spoken to in plain HTTP and must not be.
    pub fn parse(text: &str, plain: PlainHttp) -> Result<Self, AddressFault> {
        let fault = |expected| AddressFault { what: "store address", found: text.to_owned(), expected };
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some("http"), rest),
            Some(("https", rest)) => (Some("https"), rest),
            Some(_) => return Err(fault("http:// or https:// before host:port")),
            None => (None, text),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let named = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
        let right = match bracketed {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(named),
        };
        if !right || port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(fault("host:port, where the host is a name or an IP address"));
        }
        let host = bracketed.unwrap_or(host);
        let loopback =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let scheme = match scheme {
            Some("http") if !loopback && plain == PlainHttp::LoopbackOnly => {
                return Err(fault(
                    "https://, or leave for plain HTTP to a store that is not on this machine",
                ));
            }
            Some(scheme) => scheme,
            None if loopback || plain == PlainHttp::Allowed => "http",
            None => "https",
        };
        Ok(Self { scheme, authority: authority.to_owned() })
    }

    /// As [`Self::parse`], of `host:port/path` too: where a store gives each of its users a part of its names.
    ///
    /// # Errors
    /// When a part is not valid.
    pub fn parse_with_path(text: &str, plain: PlainHttp) -> Result<(Self, Option<Repository>), AddressFault> {
        let after_scheme = text.find("://").map_or(0, |at| at + 3);
        let end = text[after_scheme..].find('/').map_or(text.len(), |at| at + after_scheme);
        let path = text[end..].trim_matches('/');
        let path = if path.is_empty() { None } else { Some(path.parse()?) };
        Ok((Self::parse(&text[..end], plain)?, path))
    }

    /// `http://host:port`
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

/// A repository in a store. A bundle's is its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository(String);

impl FromStr for Repository {
    type Err = AddressFault;

    /// As distribution-spec 1.1 has it: components of a-z and 0-9, parted by one of `.`, `_`, `__` or any
    /// number of `-`.
    fn from_str(text: &str) -> Result<Self, AddressFault> {
        let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let component = |text: &str| {
            let separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
            let right = |sep: &str| matches!(sep, "" | "." | "_" | "__") || sep.bytes().all(|b| b == b'-');
            let (first, last) = (text.bytes().next(), text.bytes().last());
            first.is_some_and(word) && last.is_some_and(word) && separators.into_iter().all(right)
        };
        if text.len() <= 255 && text.split('/').all(component) {
            return Ok(Self(text.to_owned()));
        }
        let expected = "a-z and 0-9, parted by '.', '_', '-' or '/'";
        Err(AddressFault { what: "repository", found: text.to_owned(), expected })
    }
}

impl Repository {
    /// A bundle's, below a path of the store.
    #[must_use]
    pub fn below(path: Option<&Self>, name: &ResourceName) -> Self {
        path.map_or_else(|| Self::from(name), |path| Self(format!("{path}/{name}")))
    }

    /// Its last component: a bundle's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Whether it is the one of a name below a path.
    #[must_use]
    pub fn is_below(&self, path: Option<&Self>) -> bool {
        let parent = self.0.rsplit_once('/').map(|(parent, _)| parent);
        path.is_none_or(|path| parent == Some(path.0.as_str()))
    }
}

impl From<&ResourceName> for Repository {
    fn from(name: &ResourceName) -> Self {
        Self(name.as_str().to_owned())
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name for a manifest, which may come to name another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tag(String);

impl FromStr for Tag {
    type Err = AddressFault;

    fn from_str(text: &str) -> Result<Self, AddressFault> {
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if (1..=128).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with(['.', '-']) {
            return Ok(Self(text.to_owned()));
        }
        let expected = "1 to 128 of a-z, A-Z, 0-9, '_', '.' and '-', the first neither '.' nor '-'";
        Err(AddressFault { what: "tag", found: text.to_owned(), expected })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which of a repository's contents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// What has this tag now.
    Tag(Tag),
    /// What has this digest: a manifest, or a bundle itself.
    Digest(Digest),
}

/// `host:port/repository:tag` or `host:port/repository@sha256:…`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The store.
    pub store: StoreAddress,
    /// The repository.
    pub repository: Repository,
    /// What in it.
    pub wanted: Wanted,
}

impl Reference {
    /// What a text refers to.
    ///
    /// # Errors
    /// When a part is missing or not valid.
    pub fn parse(text: &str, plain: PlainHttp) -> Result<Self, AddressFault> {
        let expected = "host:port/repository:tag or host:port/repository@sha256:…";
        let fault = || AddressFault { what: "reference", found: text.to_owned(), expected };
        let after_scheme = text.find("://").map_or(0, |at| at + 3);
        let slash = text[after_scheme..].find('/').map(|at| at + after_scheme).ok_or_else(fault)?;
        let (store, rest) = (&text[..slash], &text[slash + 1..]);
        let (repository, wanted) = if let Some((repository, digest)) = rest.split_once('@') {
            (repository, Wanted::Digest(digest.parse().map_err(|_| fault())?))
        } else {
            let (repository, tag) = rest.rsplit_once(':').ok_or_else(fault)?;
            (repository, Wanted::Tag(tag.parse()?))
        };
        let store = StoreAddress::parse(store, plain)?;
        Ok(Self { store, repository: repository.parse()?, wanted })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, repository, wanted } = self;
        match wanted {
            Wanted::Tag(tag) => write!(f, "{store}/{repository}:{tag}"),
            Wanted::Digest(digest) => write!(f, "{store}/{repository}@{digest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str, plain: PlainHttp) -> Result<String, AddressFault> {
        StoreAddress::parse(text, plain).map(|address| address.url())
    }

    #[test]
    fn plain_http_is_for_this_machine() {
        let own = PlainHttp::LoopbackOnly;
        assert_eq!(url("127.0.0.1:5000", own).unwrap(), "http://127.0.0.1:5000");
        assert_eq!(url("localhost", own).unwrap(), "http://localhost");
        assert_eq!(url("[::1]:5000", own).unwrap(), "http://[::1]:5000");
        assert_eq!(url("store.example", own).unwrap(), "https://store.example");
        assert_eq!(url("https://127.0.0.1:5000/", own).unwrap(), "https://127.0.0.1:5000");
        assert_eq!(url("http://10.0.0.1:5000", PlainHttp::Allowed).unwrap(), "http://10.0.0.1:5000");
        url("http://10.0.0.1:5000", own).unwrap_err();
        for bad in ["", "a b", "host:port", "host:70000", "ftp://host", "[::g]:1", "host/path"] {
            url(bad, own).unwrap_err();
        }
    }

    #[test]
    fn a_store_may_give_its_users_a_path_each() {
        let parse = |text: &str| StoreAddress::parse_with_path(text, PlainHttp::LoopbackOnly);
        let (store, path) = parse("https://store.example/owner/x/").unwrap();
        assert_eq!(
            (store.url().as_str(), path.clone()),
            ("https://store.example", Some("owner/x".parse().unwrap()))
        );
        assert_eq!(parse("127.0.0.1:5000/").unwrap().1, None);
        parse("store.example/Owner").unwrap_err();
        let repository = Repository::below(path.as_ref(), &"mesh-host".parse().unwrap());
        assert_eq!((repository.to_string().as_str(), repository.name()), ("owner/x/mesh-host", "mesh-host"));
        assert!(repository.is_below(path.as_ref()) && repository.is_below(None));
        assert!(!repository.is_below(Some(&"owner".parse().unwrap())));
    }

    #[test]
    fn a_reference_reads_back_as_it_was_written() {
        let digest = Digest::of(b"");
        for text in ["127.0.0.1:5000/mesh-host:1.0-linux-amd64", &format!("store.example/a/b@{digest}")] {
            let reference = Reference::parse(text, PlainHttp::LoopbackOnly).unwrap();
            assert_eq!(reference.to_string(), text);
        }
        for bad in ["mesh-host", "h:1/r", "h:1/R:t", "h:1/r@sha256:12", "h:1/r:-t", "h:1/a..b:t", "h:1/_a:t"]
        {
            Reference::parse(bad, PlainHttp::LoopbackOnly).unwrap_err();
        }
    }
}
