//! Recording proxies before the engine's socket, the bus and the store: what a command says to each of them, whatever it
//! is.
//!
//! In: a mesh, words of a command. Out: what it said, and every request that would have changed something. Not here: what
//! may be changed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use crate::command::{As, Said, run};
use crate::mesh::{LIMIT, Mesh};
use crate::parts::Binary;

/// What went by.
#[derive(Debug, Clone, Default)]
pub struct Gone(Arc<Mutex<Vec<u8>>>);

impl Gone {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// The requests of HTTP that are no mere question.
    fn changes_of_http(&self) -> Vec<String> {
        let text = self.text();
        let requests = text.lines().filter(|line| line.ends_with(" HTTP/1.1"));
        requests
            .filter(|line| !["GET ", "HEAD "].iter().any(|method| line.starts_with(method)))
            .map(str::to_owned)
            .collect()
    }

    /// What was published on the bus that is no question to the seat, or one of a verb that changes something and is no
    /// dry run.
    fn changes_of_bus(&self) -> Vec<String> {
        const QUESTIONS: [&str; 5] = ["status", "modules", "plans", "nodes", "noop"];
        let text = self.text();
        let mut lines = text.lines().peekable();
        let mut changes = Vec::new();
        while let Some(line) = lines.next() {
            let Some(subject) = line.strip_prefix("PUB ").or_else(|| line.strip_prefix("HPUB ")) else {
                continue;
            };
            let subject = subject.split(' ').next().unwrap_or_default();
            let verb = subject.rsplit('.').next().unwrap_or_default();
            // To its own inbox: nothing but a sign that the server is there.
            if subject.starts_with("_INBOX.") {
                continue;
            }
            let is_seat = subject.contains(".seat.") && !subject.starts_with('$');
            let is_dry = lines.peek().is_some_and(|body| body.contains(r#""mode":"dry-run""#));
            if !is_seat || !(QUESTIONS.contains(&verb) || is_dry) {
                changes.push(line.to_owned());
            }
        }
        changes
    }
}

/// What a command said to the parts.
#[derive(Debug)]
pub struct Recorded {
    /// The command's own words.
    pub said: Said,
    /// Each request that would change something, and at which part.
    pub changes: Vec<String>,
    /// The bytes that went to each part.
    pub bytes: [usize; 3],
}

/// Runs `mesh` with these words behind the proxies.
///
/// # Panics
/// When a proxy cannot be set up.
pub async fn record(mesh: &Mesh, words: &[&str], ports: Option<(u16, u16)>) -> Recorded {
    let folder = tempfile::Builder::new().prefix("mt-proxies-").tempdir_in("/tmp").unwrap();
    let at = |name: &str| folder.path().join(name);
    let (engine, bus, store) = (Gone::default(), Gone::default(), Gone::default());
    let real = PathBuf::from(mesh_engine_socket());
    listen(&at("engine"), engine.clone(), To::Socket(real));
    let mut arguments: Vec<String> = vec!["--net".to_owned()];
    arguments.push(env_binary("behind-proxies"));
    if let Some((bus_port, store_port)) = ports {
        listen(&at("bus"), bus.clone(), To::Port(bus_port));
        listen(&at("store"), store.clone(), To::Port(store_port));
        arguments.push(format!("{bus_port}={}", at("bus").display()));
        arguments.push(format!("{store_port}={}", at("store").display()));
    }
    arguments.push("--".to_owned());
    arguments.push(Binary::Mesh.path().to_str().unwrap().to_owned());
    arguments.extend(words.iter().map(|word| (*word).to_owned()));
    arguments.extend(["--root".to_owned(), mesh.layout().root().to_string()]);
    let mut environment = crate::mesh::environment();
    environment.retain(|(name, _)| name != "DOCKER_HOST" && name != "DOCKER_CONTEXT");
    environment.push(("DOCKER_HOST".to_owned(), format!("unix://{}", at("engine").display())));
    let said = run("unshare".as_ref(), &arguments, &environment, As::Myself, LIMIT).await;
    let named = |part: &str, changes: Vec<String>| {
        changes.into_iter().map(|change| format!("{part}: {change}")).collect::<Vec<_>>()
    };
    let changes = [
        named("engine", engine.changes_of_http()),
        named("bus", bus.changes_of_bus()),
        named("store", store.changes_of_http()),
    ];
    let bytes = [&engine, &bus, &store].map(|gone| gone.text().len());
    Recorded { said, changes: changes.concat(), bytes }
}

fn mesh_engine_socket() -> String {
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    host.strip_prefix("unix://").unwrap_or("/var/run/docker.sock").to_owned()
}

/// A program of this package's own, which lies beside the tests.
fn env_binary(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap();
    folder.join(name).to_str().unwrap().to_owned()
}

#[derive(Debug, Clone)]
enum To {
    Socket(PathBuf),
    Port(u16),
}

/// A proxy at a socket, which writes down what the client says.
fn listen(at: &Path, gone: Gone, to: To) {
    let listener = UnixListener::bind(at).unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (gone, to) = (gone.clone(), to.clone());
            tokio::spawn(async move {
                // Nobody there is nobody here.
                match to {
                    To::Socket(path) => {
                        let Ok(server) = UnixStream::connect(path).await else { return };
                        let (read, write) = server.into_split();
                        pass(client, read, write, gone).await;
                    }
                    To::Port(port) => {
                        let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                        let (read, write) = server.into_split();
                        pass(client, read, write, gone).await;
                    }
                }
            });
        }
    });
}

async fn pass(
    client: UnixStream,
    mut answers: impl tokio::io::AsyncRead + Unpin,
    mut server: impl tokio::io::AsyncWrite + Unpin,
    gone: Gone,
) {
    let (mut questions, mut back) = client.into_split();
    let asking = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = questions.read(&mut buffer).await {
            gone.0.lock().unwrap().extend_from_slice(&buffer[..read]);
            if server.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
        let _ = server.shutdown().await;
    };
    let answering = async {
        let _ = tokio::io::copy(&mut answers, &mut back).await;
        let _ = back.shutdown().await;
    };
    tokio::join!(asking, answering);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(text: &str) -> Gone {
        Gone(Arc::new(Mutex::new(text.as_bytes().to_vec())))
    }

    #[test]
    fn a_change_is_told_from_a_question() {
        let http = gone("GET /v2/ HTTP/1.1\r\nHost: x\r\n\r\nPOST /v1.41/images/load HTTP/1.1\r\n\r\nbody");
        assert_eq!(http.changes_of_http(), ["POST /v1.41/images/load HTTP/1.1"]);
        let asked = "PUB mesh.m1.seat.mesh-controller.status _INBOX.a 2\r\n{}\r\n";
        let echo = "PUB _INBOX.o.operator.x 0\r\n\r\n";
        let dry = "PUB mesh.m1.seat.mesh-controller.push _INBOX.a 18\r\n{\"mode\":\"dry-run\"}\r\n";
        assert!(gone(&format!("CONNECT {{}}\r\n{asked}{echo}{dry}PING\r\n")).changes_of_bus().is_empty());
        for change in [
            "PUB mesh.m1.seat.mesh-controller.push _INBOX.a 13\r\n{\"mode\":\"do\"}\r\n",
            "PUB $JS.API.STREAM.CREATE.x _INBOX.a 2\r\n{}\r\n",
            "HPUB $KV.state.plan 1 2\r\n{}\r\n",
        ] {
            assert_eq!(gone(change).changes_of_bus().len(), 1, "{change}");
        }
    }
}
