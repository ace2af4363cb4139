//! A proxy that counts what goes through, and cuts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub(super) const NEVER: u64 = u64::MAX;

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    requests: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    /// Each connection is cut after so many bytes of answers.
    pub(super) cut_answers_after: Arc<AtomicU64>,
    /// The connections that have carried so many bytes together, of this kind: the one at it is cut, and then none.
    pub(super) cut_requests_once_at: Arc<AtomicU64>,
    pub(super) cut_answers_once_at: Arc<AtomicU64>,
}

struct Flow {
    requests: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    cut_answers_after: Arc<AtomicU64>,
    cut_requests_once_at: Arc<AtomicU64>,
    cut_answers_once_at: Arc<AtomicU64>,
}

/// Takes so much from what may pass until the cut; what may still pass of it, if this is where the cut is.
fn spend(left: &AtomicU64, count: usize) -> Option<usize> {
    let count = count as u64;
    let mut now = left.load(Ordering::SeqCst);
    loop {
        let (next, cut) = match now {
            NEVER => return None,
            now if now < count => (NEVER, Some(usize::try_from(now).unwrap())),
            now => (now - count, None),
        };
        match left.compare_exchange(now, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return cut,
            Err(changed) => now = changed,
        }
    }
}

impl Proxy {
    pub(super) async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let [requests, sent] = [0, 0].map(|number| Arc::new(AtomicU64::new(number)));
        let [cut_answers_after, cut_requests_once_at, cut_answers_once_at] =
            [NEVER; 3].map(|number| Arc::new(AtomicU64::new(number)));
        let proxy =
            Self { address, requests, sent, cut_answers_after, cut_requests_once_at, cut_answers_once_at };
        let flow = Arc::new(Flow {
            requests: Arc::clone(&proxy.requests),
            sent: Arc::clone(&proxy.sent),
            cut_answers_after: Arc::clone(&proxy.cut_answers_after),
            cut_requests_once_at: Arc::clone(&proxy.cut_requests_once_at),
            cut_answers_once_at: Arc::clone(&proxy.cut_answers_once_at),
        });
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let flow = Arc::clone(&flow);
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(upstream).await else { return };
                    let (client_in, client_out) = client.into_split();
                    let (server_in, server_out) = server.into_split();
                    // Whichever ends first ends both: dropped halves close both connections.
                    tokio::select! {
                        // cancel safe: the connection ends with it.
                        () = flow.up(client_in, server_out) => {}
                        // cancel safe: as above.
                        () = flow.down(server_in, client_out) => {}
                    }
                });
            }
        });
        proxy
    }

    /// Requests and bytes since the last time.
    pub(super) fn count(&self) -> (u64, u64) {
        (self.requests.swap(0, Ordering::SeqCst), self.sent.swap(0, Ordering::SeqCst))
    }
}

impl Flow {
    async fn up(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let lines = buffer[..count].windows(11).filter(|bytes| *bytes == b" HTTP/1.1\r\n").count();
            self.requests.fetch_add(lines as u64, Ordering::SeqCst);
            self.sent.fetch_add(count as u64, Ordering::SeqCst);
            let cut = spend(&self.cut_requests_once_at, count);
            if to.write_all(&buffer[..cut.unwrap_or(count)]).await.is_err() || cut.is_some() {
                break;
            }
        }
    }

    async fn down(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 16 << 10];
        let mut passed = 0;
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let limit = self.cut_answers_after.load(Ordering::SeqCst);
            passed += count as u64;
            let cut = spend(&self.cut_answers_once_at, count);
            if passed > limit || to.write_all(&buffer[..cut.unwrap_or(count)]).await.is_err() || cut.is_some()
            {
                break;
            }
        }
    }
}
