//! In which ways there is no engine, each told from the others.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use mesh_engine::{Address, Endpoint, Engine, Error, FoundBy, Silence};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn at(path: &Path) -> Endpoint {
    Endpoint { address: Address::Unix(path.to_owned()), found_by: FoundBy::Explicit }
}

#[tokio::test]
async fn a_socket_that_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let error = Engine::connect(&at(&folder.path().join("none.sock"))).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { silence: Silence::NoSocket, .. }), "{error:?}");
}

#[tokio::test]
async fn a_socket_at_which_nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let error = Engine::connect(&at(&path)).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { silence: Silence::NobodyAnswers, .. }), "{error:?}");

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = format!("tcp://{free}").parse().unwrap();
    let error = Engine::connect(&Endpoint { address, found_by: FoundBy::Explicit }).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { silence: Silence::NobodyAnswers, .. }), "{error:?}");
}

/// The clock runs ahead as soon as everything waits, so the deadline costs the test nothing.
#[tokio::test(start_paused = true)]
async fn an_engine_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hung.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = Engine::connect(&at(&path)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

/// Answers each request with `answer`, and keeps its first line.
fn serve(path: &Path, answer: &'static str) -> (tokio::task::JoinHandle<()>, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let listener = tokio::net::UnixListener::bind(path).unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            if let Ok(read @ 1..) = stream.read(&mut request).await {
                let text = String::from_utf8_lossy(&request[..read]);
                noted.lock().unwrap().push(text.lines().next().unwrap_or_default().to_owned());
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
                let response = format!("{head}: {}\r\n\r\n{answer}", answer.len());
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        }
    });
    (server, asked)
}

/// Each answer to that question has an engine start other programs, which takes as long as all else of a short command.
#[tokio::test]
async fn connecting_asks_an_engine_for_its_version_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.sock");
    let (server, asked) = serve(&path, r#"{"ApiVersion":"1.41","MinAPIVersion":"1.12"}"#);
    Engine::connect(&at(&path)).await.unwrap();
    server.abort();
    let asked = asked.lock().unwrap().clone();
    assert!(matches!(&asked[..], [one] if one.starts_with("GET ") && one.contains("/version")), "{asked:?}");
}

#[tokio::test]
async fn an_engine_that_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.sock");
    let (server, _) = serve(&path, r#"{"ApiVersion":"1.40"}"#);
    let error = Engine::connect(&at(&path)).await.unwrap_err();
    assert!(matches!(&error, Error::TooOld { found, .. } if found.to_string() == "1.40"), "{error:?}");
    server.abort();
}

#[tokio::test]
async fn an_engine_that_is_too_new() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.sock");
    let (server, _) = serve(&path, r#"{"ApiVersion":"1.99","MinAPIVersion":"1.98"}"#);
    let error = Engine::connect(&at(&path)).await.unwrap_err();
    assert!(matches!(&error, Error::TooNew { found, .. } if found.to_string() == "1.98"), "{error:?}");
    assert!(error.remedy().is_some());
    server.abort();
}

#[tokio::test]
async fn something_that_is_no_engine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.sock");
    let (server, _) = serve(&path, "hello");
    let error = Engine::connect(&at(&path)).await.unwrap_err();
    assert!(matches!(error, Error::Nonsense { .. }), "{error:?}");
    server.abort();
}

const AS_SOMEBODY_ELSE: &str = "MESH_ENGINE_TEST_SOCKET";

/// Runs itself once more as a user who may not write to the socket.
#[tokio::test]
async fn a_socket_that_is_not_permitted() {
    if let Ok(socket) = std::env::var(AS_SOMEBODY_ELSE) {
        let error = Engine::connect(&at(Path::new(&socket))).await.unwrap_err();
        assert!(matches!(error, Error::NotPermitted { .. }), "{error:?}");
        assert!(error.remedy().unwrap().contains(&socket));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open(folder.path(), 0o755);
    let socket = folder.path().join("root.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    open(&socket, 0o600);
    // A copy, for the folder it was built in may be closed to others.
    let program = folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    open(&program, 0o755);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", "reach::a_socket_that_is_not_permitted", "--nocapture"])
        .env(AS_SOMEBODY_ELSE, &socket)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
