use std::os::unix::fs::PermissionsExt as _;

use super::super::address::PlainHttp;
use super::*;

fn address(text: &str) -> StoreAddress {
    StoreAddress::parse(text, PlainHttp::LoopbackOnly).unwrap()
}

fn password(user: &str, password: &str) -> Login {
    Login::Password { user: user.to_owned(), password: Secret::new(password) }
}

fn auth(pair: &str) -> String {
    BASE64.encode(pair.as_bytes())
}

struct Home(tempfile::TempDir);

impl Home {
    fn with(text: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.write(".docker/config.json", text, 0o600);
        home
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn keychain(&self) -> Keychain {
        let at = |name: &str| Some(self.0.path().join(name).into_os_string());
        Keychain::of_environment(|variable| match variable {
            "HOME" => at(""),
            "XDG_RUNTIME_DIR" => at("run"),
            "PATH" => at("bin"),
            _ => None,
        })
    }

    async fn login(&self, store: &str) -> Result<Option<Login>, CredentialError> {
        self.keychain().login(&address(store), None).await
    }

    /// A helper that answers this, and keeps what it was asked.
    fn helper(&self, name: &str, answer: &str, exit: u8) {
        let asked = self.0.path().join("asked");
        let script = format!(
            "#!/bin/sh\n/bin/cat >{asked}\nprintf %s '{answer}'\nexit {exit}\n",
            asked = asked.display()
        );
        self.write(&format!("bin/docker-credential-{name}"), &script, 0o755);
    }

    fn asked(&self) -> String {
        std::fs::read_to_string(self.0.path().join("asked")).unwrap()
    }
}

#[tokio::test]
async fn a_store_is_found_under_each_way_to_write_its_name() {
    let entry = format!(r#"{{"auth":"{}"}}"#, auth("u:p:w"));
    for key in ["store.example:5000", "https://store.example:5000", "https://store.example:5000/v2/"] {
        let home = Home::with(&format!(r#"{{"auths":{{"{key}":{entry}}}}}"#));
        assert_eq!(home.login("store.example:5000").await.unwrap(), Some(password("u", "p:w")));
        // Another port is another store.
        assert_eq!(home.login("store.example").await.unwrap(), None);
    }
    let home = Home::with(&format!(r#"{{"auths":{{"https://index.docker.io/v1/":{entry}}}}}"#));
    assert_eq!(home.login("registry-1.docker.io").await.unwrap(), Some(password("u", "p:w")));
}

#[tokio::test]
async fn every_kind_of_entry_is_read() {
    let of = async |entry: &str| {
        let home = Home::with(&format!(r#"{{"auths":{{"store.example":{entry}}}}}"#));
        home.login("store.example").await
    };
    let token = |text: &str| Secret::new(text);
    let pair = auth("u:p");
    assert_eq!(of(&format!(r#"{{"auth":"{pair}"}}"#)).await.unwrap(), Some(password("u", "p")));
    assert_eq!(of(r#"{"username":"u","password":"p"}"#).await.unwrap(), Some(password("u", "p")));
    assert_eq!(of(r#"{"identitytoken":"i"}"#).await.unwrap(), Some(Login::IdentityToken(token("i"))));
    assert_eq!(of(r#"{"registrytoken":"r"}"#).await.unwrap(), Some(Login::RegistryToken(token("r"))));
    assert_eq!(of("{}").await.unwrap(), None);
    for bad in [r#"{"auth":"?"}"#, r#"{"auth":"eA=="}"#] {
        assert!(
            matches!(of(bad).await.unwrap_err(), CredentialError::MalformedEntry { host, .. } if host == "store.example")
        );
    }
}

#[tokio::test]
async fn helpers_are_asked_as_others_ask_them() {
    let home = Home::with(
        r#"{"auths":{"store.example":{},"plain.example":{"auth":"dTpw"}},"credsStore":"all","credHelpers":{"one.example":"one"}}"#,
    );
    home.helper("all", r#"{"ServerURL":"x","Username":"<token>","Secret":"s"}"#, 0);
    home.helper("one", r#"{"Username":"u","Secret":"s"}"#, 0);
    let token = Some(Login::IdentityToken(Secret::new("s")));
    assert_eq!(home.login("store.example").await.unwrap(), token);
    assert_eq!(home.asked(), "store.example");
    assert_eq!(home.login("other.example:1").await.unwrap(), token);
    assert_eq!(home.asked(), "other.example:1");
    assert_eq!(home.login("registry-1.docker.io").await.unwrap(), token);
    assert_eq!(home.asked(), DOCKER_HUB);
    assert_eq!(home.login("one.example").await.unwrap(), Some(password("u", "s")));
    assert_eq!(home.login("plain.example").await.unwrap(), Some(password("u", "p")));

    home.helper("one", NOT_FOUND, 1);
    assert_eq!(home.login("one.example").await.unwrap(), None);
    home.helper("one", "the keyring is locked", 1);
    let error = home.login("one.example").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"the credential helper docker-credential-one failed: "the keyring is locked""#
    );
    home.helper("one", "secret and no JSON", 0);
    let error = home.login("one.example").await.unwrap_err();
    assert!(!error.to_string().contains("secret and"), "{error}");
    std::fs::remove_file(home.0.path().join("bin/docker-credential-one")).unwrap();
    let error = home.login("one.example").await.unwrap_err();
    assert!(
        matches!(error, CredentialError::HelperMissing { helper, .. } if helper == "docker-credential-one")
    );
}

#[tokio::test]
async fn a_helper_is_never_a_path() {
    let home = Home::with(r#"{"credHelpers":{"store.example":"../../bin/sh"}}"#);
    let error = home.login("store.example").await.unwrap_err();
    assert!(matches!(error, CredentialError::HelperName { found, .. } if found == "../../bin/sh"));
}

#[tokio::test]
async fn the_second_file_is_for_what_the_first_does_not_have() {
    let home = Home::with(&format!(r#"{{"auths":{{"a.example":{{"auth":"{}"}}}}}}"#, auth("a:1")));
    let second = format!(
        r#"{{"auths":{{"a.example":{{"auth":"{}"}},"b.example":{{"auth":"{}"}}}}}}"#,
        auth("a:2"),
        auth("b:2")
    );
    home.write("run/containers/auth.json", &second, 0o600);
    assert_eq!(home.login("a.example").await.unwrap(), Some(password("a", "1")));
    assert_eq!(home.login("b.example").await.unwrap(), Some(password("b", "2")));
    assert_eq!(home.login("c.example").await.unwrap(), None);
}

#[tokio::test]
async fn a_file_that_is_not_there_says_nothing_and_a_broken_one_is_an_error() {
    let home = Home(tempfile::tempdir().unwrap());
    assert_eq!(home.login("a.example").await.unwrap(), None);
    let named = Keychain::of_file(&home.0.path().join("no"));
    assert!(matches!(
        named.login(&address("a.example"), None).await.unwrap_err(),
        CredentialError::Read { .. }
    ));
    home.write(".docker/config.json", "{", 0o600);
    assert!(matches!(home.login("a.example").await.unwrap_err(), CredentialError::Malformed { .. }));
}

#[tokio::test]
async fn the_longest_path_that_is_kept_is_taken() {
    let entry = |pair: &str| format!(r#"{{"auth":"{}"}}"#, auth(pair));
    let home = Home::with(&format!(
        r#"{{"auths":{{"s.example":{},"s.example/a":{},"s.example/a/b":{}}},"credHelpers":{{"s.example/h":"one"}}}}"#,
        entry("host:1"),
        entry("a:2"),
        entry("b:3")
    ));
    home.helper("one", r#"{"Username":"u","Secret":"s"}"#, 0);
    let of = async |repository: &str| {
        home.keychain().login(&address("s.example"), Some(repository)).await.unwrap().unwrap()
    };
    assert_eq!(of("a/b/prog").await, password("b", "3"));
    assert_eq!(of("a/prog").await, password("a", "2"));
    assert_eq!(of("ab/prog").await, password("host", "1"));
    assert_eq!(of("h/prog").await, password("u", "s"));
    assert_eq!(home.asked(), "s.example/h");
    assert_eq!(home.login("s.example").await.unwrap(), Some(password("host", "1")));
}
