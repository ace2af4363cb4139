//! NATS's own form of JSON web tokens, version 2: what the server knows of operator, accounts and users.
//!
//! In: who signs, for whom, what. Out: a token. Not here: what a user may do (`rights`).
//!
//! There is no library for it in Rust. It is little: a header, claims and a signature, each in base64url
//! without padding, joined by dots.

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use nkeys::KeyPair;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512_256};

use super::rights::{Rights, Shared, Sharing};

const HEADER: &str = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;

#[derive(Serialize)]
struct Claims<'a> {
    jti: String,
    iat: i64,
    iss: String,
    name: &'a str,
    sub: &'a str,
    nats: &'a Value,
}

/// Claims about `subject`, signed by `issuer` at `issued` (seconds since 1970).
pub(super) fn token(
    issuer: &KeyPair,
    subject: &str,
    name: &str,
    issued: i64,
    nats: &Value,
) -> Result<String, nkeys::error::Error> {
    let mut claims =
        Claims { jti: String::new(), iat: issued, iss: issuer.public_key(), name, sub: subject, nats };
    let digest = Sha512_256::digest(to_json(&claims));
    claims.jti = BASE32_NOPAD.encode(&digest);
    let head = BASE64URL_NOPAD.encode(HEADER.as_bytes());
    let body = BASE64URL_NOPAD.encode(&to_json(&claims));
    let signed = format!("{head}.{body}");
    let signature = BASE64URL_NOPAD.encode(&issuer.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

fn to_json(claims: &Claims<'_>) -> Vec<u8> {
    #[allow(clippy::expect_used)] // strings, a number and a value: there is nothing that could fail
    serde_json::to_vec(claims).expect("claims can be written as JSON")
}

/// Of the operator itself.
pub(super) fn operator() -> Value {
    json!({ "type": "operator", "version": 2 })
}

/// Whether an account has JetStream. One that shall must name every limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JetStream {
    On,
    Off,
}

/// Of an account: what it shares, and what it takes from the account `from`.
pub(super) fn account(jetstream: JetStream, exports: &[Shared], imports: &[Shared], from: &str) -> Value {
    let mut limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1,
    });
    if jetstream == JetStream::On {
        for name in ["mem_storage", "disk_storage", "streams", "consumer"] {
            limits[name] = json!(-1);
        }
    }
    let exports: Vec<Value> = exports
        .iter()
        .map(|shared| json!({ "name": shared.subject, "subject": shared.subject, "type": kind(shared.sharing) }))
        .collect();
    let imports: Vec<Value> = imports
        .iter()
        .map(|shared| {
            json!({
                "name": shared.subject, "subject": shared.subject, "account": from,
                "type": kind(shared.sharing),
            })
        })
        .collect();
    json!({
        "type": "account", "version": 2, "limits": limits, "exports": exports, "imports": imports,
    })
}

/// Of a user: what it may do.
pub(super) fn user(rights: &Rights) -> Value {
    json!({
        "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        "pub": permission(&rights.publish),
        "sub": permission(&rights.subscribe),
    })
}

/// An empty list of what is allowed would allow all.
fn permission(allowed: &[String]) -> Value {
    if allowed.is_empty() { json!({ "deny": [">"] }) } else { json!({ "allow": allowed }) }
}

const fn kind(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Service => "service",
        Sharing::Stream => "stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_verifies_under_its_issuers_key() {
        let issuer = KeyPair::new_account();
        let text = token(&issuer, "UABC", "n1", 1_700_000_000, &operator()).unwrap();
        let parts: Vec<&str> = text.split('.').collect();
        assert_eq!(parts.len(), 3);
        let signature = BASE64URL_NOPAD.decode(parts[2].as_bytes()).unwrap();
        let signed = format!("{}.{}", parts[0], parts[1]);
        issuer.verify(signed.as_bytes(), &signature).unwrap();
        let claims: Value =
            serde_json::from_slice(&BASE64URL_NOPAD.decode(parts[1].as_bytes()).unwrap()).unwrap();
        assert_eq!(claims["iss"], issuer.public_key());
        assert_eq!(claims["sub"], "UABC");
        assert_eq!(claims["jti"].as_str().unwrap().len(), 52);
    }

    #[test]
    fn the_same_claims_make_the_same_token() {
        let issuer = KeyPair::new_operator();
        let make = || token(&issuer, "A", "a", 1, &operator()).unwrap();
        assert_eq!(make(), make());
    }

    #[test]
    fn no_right_is_not_every_right() {
        let none = Rights { publish: Vec::new(), subscribe: vec!["a.>".to_owned()] };
        let claims = user(&none);
        assert_eq!(claims["pub"], json!({ "deny": [">"] }));
        assert_eq!(claims["sub"], json!({ "allow": ["a.>"] }));
    }

    #[test]
    fn only_an_account_with_jetstream_names_its_limits() {
        let with = account(JetStream::On, &[], &[], "");
        let without = account(JetStream::Off, &[], &[], "");
        assert_eq!(with["limits"]["streams"], -1);
        assert_eq!(without["limits"].get("streams"), None);
    }
}
