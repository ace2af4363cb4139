//! Answers that no registry should give, and documents that no tool should write. What holds for each: whatever was
//! asked for ends soon, with an error or a right result; a file is there only if it has its digest.

use tokio::net::TcpStream;

use super::super::challenge::Challenge;
use super::super::resolve::Found;
use super::super::upload::{Blob, Content};
use super::*;
use crate::config::Config;
use crate::testing::fuzz::{Random, corpus, mutate, seeds};

/// One operation asks at most so often; more is a loop.
const MOST_REQUESTS: usize = 60;

#[test]
fn documents_that_no_tool_should_write() {
    let documents = corpus("documents");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = StoreAddress::parse("127.0.0.1:5000", PlainHttp::LoopbackOnly).unwrap();
    for case in seeds() {
        let mut random = Random::of(case.seed);
        let mut document = random.one_of(&documents).clone();
        if random.below(16) > 0 {
            mutate(&mut random, &mut document, &documents);
        }
        match Found::read(&document) {
            Ok(Found::Index(index)) => {
                assert_eq!(Found::read(&index.to_bytes()).unwrap(), Found::Index(index));
            }
            Ok(Found::Manifest(manifest)) => {
                assert_eq!(Found::read(&manifest.to_bytes()).unwrap(), Found::Manifest(manifest));
            }
            Err(_) => {}
        }
        if let Ok(config) = serde_json::from_slice::<Config>(&document) {
            assert_eq!(serde_json::from_slice::<Config>(&config.to_bytes()).unwrap(), config);
        }
        if let Ok(text) = std::str::from_utf8(&document) {
            let _any = Challenge::best([text]);
            let _any = Reference::parse(text, PlainHttp::LoopbackOnly);
            // No helper is run: what is mutated might name one that is there.
            if !text.contains("cred") {
                std::fs::write(&file, text).unwrap();
                let _any = runtime.block_on(Keychain::of_file(&file).login(&address, None));
            }
        }
    }
}

/// Answers each request with one of the corpus, mutated or not, and closes.
async fn answer(listener: TcpListener, seed: u64, answers: &[Vec<u8>]) {
    let at = listener.local_addr().unwrap().to_string();
    let mut random = Random::of(seed);
    for _ in 0..MOST_REQUESTS {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let mut bytes = random.one_of(answers).clone();
        if random.below(3) > 0 {
            mutate(&mut random, &mut bytes, answers);
        }
        let bytes = String::from_utf8(bytes).map_or_else(std::string::FromUtf8Error::into_bytes, |text| {
            text.replace("@ADDRESS@", &at).into_bytes()
        });
        let _gone = one(&mut stream, &bytes).await;
    }
    panic!("more than {MOST_REQUESTS} requests");
}

async fn one(stream: &mut TcpStream, answer: &[u8]) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let _some = stream.read(&mut buffer).await?;
    stream.write_all(answer).await?;
    stream.shutdown().await
}

async fn ask(store: &Store, random: &mut Random, out: &std::path::Path) {
    let repository: Repository = "prog".parse().unwrap();
    let digest = Digest::of(b"content");
    let wanted = [Wanted::Tag("1.0".parse().unwrap()), Wanted::Digest(digest.clone())];
    match random.below(8) {
        0 => drop(store.ping().await),
        1 => drop(store.tags(&repository).await),
        2 => drop(store.repositories().await),
        3 => drop(store.tagged(&repository, &"1.0".parse().unwrap()).await),
        4 => drop(store.resolve(&repository, random.one_of(&wanted)).await),
        5 => drop(store.index(&repository, &"1.0".parse().unwrap()).await),
        6 => {
            let content = Content::Bytes("content".into());
            drop(store.upload(&repository, &Blob { content, digest: &digest, size: 7 }, SILENT).await);
        }
        _ => match store.fetch(&repository, &digest, out, 1 << 16, SILENT).await {
            Ok(length) => {
                assert_eq!((length, std::fs::read(out).unwrap().as_slice()), (7, b"content".as_slice()));
                std::fs::remove_file(out).unwrap();
            }
            Err(_) => assert!(!out.exists()),
        },
    }
}

#[tokio::test]
async fn answers_that_no_registry_should_give() {
    let answers = corpus("answers");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for case in seeds() {
        let mut random = Random::of(case.seed);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let address = StoreAddress::parse(&address, PlainHttp::LoopbackOnly).unwrap();
        let credentials = match random.below(3) {
            0 => Credentials::Anonymous,
            1 => Credentials::Given(Login::IdentityToken(Secret::new("i"))),
            _ => Credentials::Given(Login::Password { user: "u".to_owned(), password: Secret::new("p") }),
        };
        let idle = Duration::from_millis(300);
        let options = Options { credentials, idle, pauses: vec![], ..Options::default() };
        let store = Store::new(address, &options).unwrap();
        let seed = random.next();
        let asked = ask(&store, &mut random, &out);
        let both = async {
            tokio::select! {
                // cancel safe: the listener goes with it.
                () = answer(listener, seed, &answers) => {}
                // cancel safe: it has ended.
                () = asked => {}
            }
        };
        tokio::time::timeout(Duration::from_secs(20), both).await.expect("it ends");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
