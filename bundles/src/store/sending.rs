//! Sending what a bundle is made of: its archive and its configuration.
//!
//! In: what is missing of them. Out: both in the store, the configuration read back, and the certainty that the archive's
//! file is what it should be, for what comes back of the archive is compared with it. Not here: one blob's way over
//! (see `upload`), and what they are put into the store for.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use mesh_protocol::id::Digest;
use tokio::sync::Notify;

use super::client::Store;
use super::digesting::finished;
use super::error::StoreError;
use super::plan::{Action, Part};
use super::publish::{Look, Patience, patiently};
use super::upload::{Blob, Content, PORTION};
use crate::Progress;
use crate::files::Hashing;
use crate::manifest::Descriptor;

impl Store {
    /// The blobs, as far as they are missing: the configuration while the archive goes over, for the time that a small
    /// request takes is the store's, which syncs what it is given. What fails ends what is done beside it.
    pub(super) async fn put_blobs(
        &self,
        look: &Look<'_>,
        archive: &Path,
        actions: &[Action],
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let [send_archive, send_config] =
            [Part::Archive, Part::Config].map(|part| actions.contains(&Action::Send(part)));
        let stages = Stages::default();
        let sending_archive = async {
            if send_archive { self.send_archive(look, archive, (&stages, progress)).await } else { Ok(()) }
        };
        let sending_config = async {
            if !send_config {
                return Ok(());
            }
            if send_archive {
                // It has all that time; the archive's session would wait for it.
                stages.begun.notified().await;
            }
            self.send_config(look).await
        };
        tokio::try_join!(sending_archive, sending_config).map(drop)
    }

    /// Sends the archive; and finds out whether the file is what it should be, for what comes back is compared with it:
    /// when all of it is sent, while the store brings it to its disk.
    async fn send_archive(
        &self,
        look: &Look<'_>,
        archive: &Path,
        (stages, progress): (&Stages, Progress<'_>),
    ) -> Result<(), StoreError> {
        let Descriptor { digest, size, .. } = &look.manifest.layers[0];
        let blob = Blob { content: Content::File(archive), digest, size: *size };
        let told = |done, total| {
            stages.at(done, *size);
            progress(done, total);
        };
        let mut checking = std::pin::pin!(async {
            stages.sent.notified().await;
            is_file(archive, digest).await
        });
        let mut sending = std::pin::pin!(self.upload(look.repository, &blob, &told));
        tokio::select! {
            // cancel safe: both are pinned outside, and whichever is not ended here is waited for.
            checked = &mut checking => {
                checked?;
                sending.await
            }
            // cancel safe: as above.
            sent = &mut sending => {
                // A store is right to refuse what has another digest.
                if matches!(sent, Ok(()) | Err(StoreError::Refused { .. })) {
                    stages.sent.notify_one();
                    checking.await?;
                }
                sent
            }
        }
    }

    /// Sends the configuration, and reads it back.
    async fn send_config(&self, look: &Look<'_>) -> Result<(), StoreError> {
        let Look { repository, manifest, config, .. } = look;
        let Descriptor { digest, size, .. } = &manifest.config;
        let blob = Blob { content: Content::Bytes(config.to_bytes().into()), digest, size: *size };
        self.upload(repository, &blob, crate::SILENT).await?;
        patiently!(self, self.verify(repository, digest, *size, crate::SILENT));
        Ok(())
    }
}

/// How far the sending of an archive has come.
#[derive(Default)]
struct Stages {
    /// It goes over.
    begun: Notify,
    /// There is nothing more to send of it.
    sent: Notify,
}

impl Stages {
    fn at(&self, done: u64, of: u64) {
        self.begun.notify_one();
        if done == of {
            self.sent.notify_one();
        }
    }
}

/// Has a file this digest?
async fn is_file(path: &Path, expected: &Digest) -> Result<(), StoreError> {
    let file = path.to_path_buf();
    let hashing = tokio::task::spawn_blocking(move || {
        let mut hashing = Hashing::new(File::open(file)?);
        io::copy(&mut BufReader::with_capacity(PORTION, &mut hashing), &mut io::sink())?;
        Ok(hashing.finish().0)
    });
    let failed = |source| StoreError::File { path: path.to_path_buf(), source };
    let found = finished(hashing).await.map_err(failed)?;
    if found == *expected {
        return Ok(());
    }
    Err(StoreError::FileDiffers { path: path.to_path_buf(), expected: expected.clone(), found })
}
