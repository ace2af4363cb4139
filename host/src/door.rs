//! The local door: a root-only unix socket in the mesh's root, where the installer asks the host.
//!
//! In: one request a connection, as one line of JSON. Out: one answer, as one line. Not here: what a request
//! means; the task answers it.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use camino::Utf8Path;
use mesh_protocol::door::{DoorAnswer, DoorRequest};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

use crate::log;
use crate::task::DoorCall;

/// The longest request: a declaration with the manifests of a large node is some hundred kilobytes.
const LONGEST: u64 = 16 << 20;
/// How long a caller may take to say its one line.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the door: binds the socket anew (the lock that the caller holds says that nobody else serves it).
///
/// # Errors
/// When the socket cannot be made.
pub fn open(path: &Utf8Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // The folder is root-only, so nobody gets in between these two.
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves the door for as long as the task listens.
pub async fn serve(listener: UnixListener, calls: mpsc::Sender<DoorCall>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let calls = calls.clone();
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, calls).await {
                        log::line(&format!("the local door: {error}"));
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: it passes, or the host has other troubles.
                log::line(&format!("the local door: {error}"));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, calls: mpsc::Sender<DoorCall>) -> io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut line = String::new();
    let mut reading = BufReader::new(reading.take(LONGEST));
    tokio::time::timeout(PATIENCE, reading.read_line(&mut line)).await??;
    let (delivered, delivery) = oneshot::channel();
    let answer = match serde_json::from_str::<DoorRequest>(&line) {
        Err(error) => DoorAnswer::Refused { why: format!("the request is not one: {error}") },
        Ok(request) => {
            let (sender, receiver) = oneshot::channel();
            let gone = || io::Error::other("the host is stopping");
            let call = DoorCall { request, answer: sender, delivered: delivery };
            calls.send(call).await.map_err(|_| gone())?;
            receiver.await.map_err(|_| gone())?
        }
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    writing.write_all(&bytes).await?;
    writing.shutdown().await?;
    // Nobody waits for it unless it was the last answer.
    let _ = delivered.send(());
    Ok(())
}
