//! host: the host's program lies in the mesh's folder, knows what it must, runs, and answers.
//!
//! In: the program beside this one. Out: a host. Not here: what it is then asked for.

use camino::Utf8Path;
use mesh_protocol::id::System;

use super::super::Reached;
use super::super::context::{Context, Touch};
use super::super::parts::Parts;
use crate::config::{self, HOST_PROGRAM};
use crate::daemon::Started;
use crate::output::{Code, Failure, Result};
use mesh_durable as durable;

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let mesh = context.mesh()?.clone();
    // A host that runs is not replaced under its feet: that is an upgrade, and not for genesis to do.
    let runs = context.host_starts || context.parts.host().await?.running.is_some();
    let mut written = false;
    if !runs {
        let source = config::host_program(context.world);
        let bytes = std::fs::read(&source).map_err(|error| {
            Failure::because(Code::BinaryMissing, &format!("{source} cannot be read"), &error)
        })?;
        let program = context.layout.programs().join(HOST_PROGRAM);
        written |= keep(context, &program, &bytes, 0o755)?;
        let file = mesh.host_file(context.endpoint()?.address.to_string());
        let text = serde_json::to_vec_pretty(&file).map_err(|error| Failure::of(Code::Internal, &error))?;
        let path = context.layout.host_file();
        written |= keep(context, &path, &text, 0o600)?;
        let _ = context.shall("start the host")?;
    }
    if context.touch == Touch::Nothing {
        return Ok(if runs {
            Reached::Already("the host runs".to_owned())
        } else {
            Reached::Now(String::new())
        });
    }
    let started = context.parts.start_host(&mesh).await?;
    let running = context.parts.host().await?.running.ok_or_else(|| {
        Failure::new(Code::HostUnreachable, "the host was started, and does not answer")
            .hint("see mesh logs host")
    })?;
    if running.mesh != mesh.mesh {
        return Err(Failure::new(Code::HostRefused, "the host in this root is another mesh's")
            .expected(mesh.mesh.to_string())
            .found(running.mesh.to_string()));
    }
    let text =
        format!("host {} on {} runs (pid {})", running.version, System::of_this_program(), running.pid);
    Ok(match started {
        Started::Already if !written => Reached::Already(text),
        _ => Reached::Now(text),
    })
}

/// Writes a file of the host's, where it is not there as it should be.
fn keep<P: Parts>(context: &mut Context<'_, P>, path: &Utf8Path, bytes: &[u8], mode: u32) -> Result<bool> {
    let failed = |error: durable::DurableError| Failure::of(Code::Io, &error);
    if std::fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(false);
    }
    if context.shall(format!("write {path}"))? {
        durable::ensure_folder(path.parent().unwrap_or(path), 0o700).map_err(failed)?;
        durable::write_unless_same(path, bytes, mode).map_err(failed)?;
    }
    Ok(true)
}
