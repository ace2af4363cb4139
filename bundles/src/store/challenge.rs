//! What a store says when it wants to know who asks: `WWW-Authenticate` (RFC 9110), and what follows from it: pure.
//!
//! In: header values from anywhere. Out: the ways in which the store lets itself be asked. Not here: asking.

use reqwest::Url;

/// A way to say who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A name and a password with each request.
    Basic,
    /// A token that somebody else gives.
    Bearer {
        /// Where from.
        realm: String,
        /// What for.
        service: Option<String>,
        /// Which rights, where the store says.
        scope: Option<String>,
    },
}

impl Challenge {
    /// The best way that we know of those that the store offers: a token is worth less to a thief than a password.
    pub(super) fn best<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut basic = None;
        for one in headers.into_iter().flat_map(parse) {
            let parameter = |name: &str| {
                one.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
            };
            match one.scheme.as_str() {
                "bearer" => {
                    if let Some(realm) = parameter("realm") {
                        let (service, scope) = (parameter("service"), parameter("scope"));
                        return Some(Self::Bearer { realm, service, scope });
                    }
                }
                "basic" => basic = Some(Self::Basic),
                _ => {}
            }
        }
        basic
    }
}

/// Whether a store may send us, with our credentials, to that place for a token: it is never asked with less
/// protection than the store itself, and without any only on the store's own host or this machine.
pub(super) fn is_realm_right(store: &Url, realm: &Url) -> bool {
    match (store.scheme(), realm.scheme()) {
        (_, "https") => true,
        ("http", "http") => realm.host() == store.host() || is_loopback(realm),
        _ => false,
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    scheme: String,
    parameters: Vec<(String, String)>,
}

/// A list of challenges, each a scheme and either parameters or one opaque text; both lists are parted by commas.
/// What cannot be understood ends it: what came before counts.
fn parse(header: &str) -> Vec<Parsed> {
    let mut rest = Rest(header);
    let mut found: Vec<Parsed> = Vec::new();
    loop {
        rest.skip(|c| c == ',' || c.is_ascii_whitespace());
        let word = rest.token();
        if word.is_empty() {
            return found;
        }
        let had_space = rest.skip(|c| c == ' ' || c == '\t') > 0;
        if let (Some(after), Some(challenge)) = (rest.0.strip_prefix('='), found.last_mut()) {
            rest.0 = after;
            rest.skip(|c| c == ' ' || c == '\t');
            let Some(value) = rest.value() else { return found };
            challenge.parameters.push((word.to_ascii_lowercase(), value));
            continue;
        }
        found.push(Parsed { scheme: word.to_ascii_lowercase(), parameters: Vec::new() });
        // `Negotiate oYGeM...==`: a text that is neither a parameter nor a scheme.
        if had_space && rest.begins_opaque() {
            rest.skip(|c| c != ',');
        }
    }
}

struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip(&mut self, of: impl Fn(char) -> bool) -> usize {
        let end = self.0.find(|c| !of(c)).unwrap_or(self.0.len());
        self.0 = &self.0[end..];
        end
    }

    fn token(&mut self) -> &'a str {
        let end = self.0.find(|c| !is_token(c)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        token
    }

    /// A token, or a text in quotes.
    fn value(&mut self) -> Option<String> {
        let Some(quoted) = self.0.strip_prefix('"') else { return Some(self.token().to_owned()) };
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Some(value);
                }
                '\\' => value.push(characters.next()?.1),
                c => value.push(c),
            }
        }
        None
    }

    fn begins_opaque(&self) -> bool {
        let end = self.0.find(|c: char| !is_token(c) && c != '/').unwrap_or(self.0.len());
        let after = self.0[end..].trim_start_matches('=');
        // With padding or alone up to the comma; `name=value` and `name="value"` are parameters.
        end > 0 && (after.is_empty() || after.trim_start().starts_with(','))
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_read_as_registries_write_it() {
        let header = r#"Bearer realm="https://auth.example/token",service="store.example",scope="repository:a/b:pull,push",error="invalid_token""#;
        let bearer = Challenge::Bearer {
            realm: "https://auth.example/token".to_owned(),
            service: Some("store.example".to_owned()),
            scope: Some("repository:a/b:pull,push".to_owned()),
        };
        assert_eq!(Challenge::best([header]), Some(bearer.clone()));
        assert_eq!(Challenge::best(["Basic realm=\"x\"", header]), Some(bearer.clone()));
        assert_eq!(Challenge::best([&*format!("Basic realm=\"a, b\", {header}")]), Some(bearer));
        assert_eq!(Challenge::best(["basic"]), Some(Challenge::Basic));
        assert_eq!(Challenge::best(["Negotiate oY/GeM==, BASIC realm=x"]), Some(Challenge::Basic));
        for bad in ["", "Bearer", "Bearer realm=\"", "Bearer service=x", "Digest realm=x", "=", "\"", ",,,"] {
            assert_eq!(Challenge::best([bad]), None, "{bad}");
        }
        let spaced = r#"bearer  REALM = "q\"uote" , service=s"#;
        let Some(Challenge::Bearer { realm, service, scope: None }) = Challenge::best([spaced]) else {
            panic!("no bearer in {spaced}")
        };
        assert_eq!((realm.as_str(), service.as_deref()), ("q\"uote", Some("s")));
    }

    #[test]
    fn credentials_never_travel_with_less_protection_than_to_the_store() {
        let right = |store: &str, realm: &str| {
            is_realm_right(&Url::parse(store).unwrap(), &Url::parse(realm).unwrap())
        };
        assert!(right("https://store.example/v2/", "https://auth.example/token"));
        assert!(right("http://127.0.0.1:5000/v2/", "http://127.0.0.1:5001/token"));
        assert!(right("http://127.0.0.1:5000/v2/", "http://[::1]:5001/token"));
        assert!(right("http://10.0.0.1/v2/", "http://10.0.0.1/token"));
        assert!(!right("https://store.example/v2/", "http://store.example/token"));
        assert!(!right("https://127.0.0.1/v2/", "http://127.0.0.1/token"));
        assert!(!right("http://127.0.0.1:5000/v2/", "http://auth.example/token"));
        assert!(!right("http://127.0.0.1:5000/v2/", "file:///token"));
    }
}
