//! Runs a command in a network of its own, in which ports of the loopback lead to sockets of the file system: whoever
//! listens there sees all that the command says to whom it believes to be at the port.
//!
//! In: `PORT=SOCKET ... -- COMMAND WORD ...`, in a network namespace that was just made. Out: the command's exit status.
//! Not here: writing anything down.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // it belongs to a test

use std::process::ExitCode;

use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (ports, command) = words.split_at(words.iter().position(|word| word == "--").unwrap());
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().await.unwrap();
    assert!(up.success(), "ip link set lo up: {up}");
    for port in ports {
        let (port, socket) = port.split_once('=').unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).await.unwrap();
        tokio::spawn(forward(listener, socket.to_owned()));
    }
    let ended = Command::new(&command[1]).args(&command[2..]).status().await.unwrap();
    ended.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

async fn forward(listener: TcpListener, socket: String) {
    while let Ok((mut here, _)) = listener.accept().await {
        let socket = socket.clone();
        tokio::spawn(async move {
            // Nobody there is nobody here: the connection ends.
            let Ok(mut there) = UnixStream::connect(&socket).await else { return };
            let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
        });
    }
}
