//! An upload that is cut off, at any byte of what is sent and of what is answered: afterwards the blob is in the store
//! and right, or the upload says that it failed; here the next try may always go through, so it is right.

use std::path::Path;
use std::sync::atomic::Ordering;

use mesh_protocol::id::Digest;

use super::super::upload::{Blob, Content, Way};
use super::proxy::{NEVER, Proxy};
use super::registry::Registry;
use super::{Repository, store};
use crate::SILENT;
use crate::testing::some_bytes;

/// The first bytes one by one, where a request's head is, then in larger and larger steps.
fn positions(total: u64) -> Vec<u64> {
    let mut at = 0;
    let mut positions = Vec::new();
    while at < total {
        positions.push(at);
        at += 1 + at / 6;
    }
    positions.extend([total.saturating_sub(1), total, total + 1]);
    positions
}

async fn every_cut(
    size: usize,
    way: Way,
    positions: &[u64],
    which: fn(&Proxy) -> &std::sync::atomic::AtomicU64,
) {
    let registry = Registry::start();
    let proxy = Proxy::before(registry.address).await;
    let store = store(proxy.address);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blob");
    let content = some_bytes(size);
    std::fs::write(&file, &content).unwrap();
    let digest = Digest::of(&content);
    for at in positions {
        // A repository of its own: the store has nothing there yet.
        let repository: Repository = format!("cut-{at}").parse().unwrap();
        let blob = Blob { content: Content::File(Path::new(&file)), digest: &digest, size: size as u64 };
        which(&proxy).store(*at, Ordering::SeqCst);
        store
            .upload_as(&repository, &blob, way, SILENT)
            .await
            .unwrap_or_else(|error| panic!("cut at {at}: {error:?}"));
        which(&proxy).store(NEVER, Ordering::SeqCst);
        let length = store.verify(&repository, &digest, size as u64, SILENT).await;
        assert_eq!(length.unwrap_or_else(|error| panic!("cut at {at}: {error}")), size as u64);
    }
}

#[tokio::test]
async fn what_is_sent_in_one_request_and_cut_anywhere_is_whole_afterwards() {
    every_cut(60_000, Way::OneRequest, &positions(61_000), |proxy| &proxy.cut_requests_once_at).await;
}

#[tokio::test]
async fn what_is_sent_and_its_answers_cut_anywhere_is_whole_afterwards() {
    every_cut(60_000, Way::OneRequest, &positions(1_000), |proxy| &proxy.cut_answers_once_at).await;
}

#[tokio::test]
async fn what_is_sent_in_chunks_and_cut_anywhere_is_whole_afterwards() {
    let size = 9 << 20;
    let heads = [0, 100, 300, 700, 1_500];
    let chunk = 4_194_304;
    let borders = [chunk, chunk + 500, chunk + 2_000, 2 * chunk + 1_000, size as u64 + 900];
    let positions: Vec<u64> = heads.into_iter().chain(borders).collect();
    every_cut(size, Way::Chunks, &positions, |proxy| &proxy.cut_requests_once_at).await;
    every_cut(size, Way::Chunks, &[0, 200, 400, 600, 900], |proxy| &proxy.cut_answers_once_at).await;
}
