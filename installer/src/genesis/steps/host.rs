//! host: the host's program lies in the mesh's folder, knows what it must, runs, and answers.
//!
//! In: the program beside this one. Out: a host. Not here: what it is then asked for.

use mesh_protocol::id::System;

use super::super::Reached;
use super::super::context::Context;
use crate::config::{self, HOST_PROGRAM};
use crate::daemon::{self, Started};
use crate::machine;
use crate::output::{Code, Failure, Result};
use mesh_durable::{self as durable, Written};

pub(super) fn would(context: &Context<'_>) -> Vec<String> {
    let program = context.layout.programs().join(HOST_PROGRAM);
    let how =
        if machine::has_systemd() { "as a unit of systemd" } else { "detached, in a session of its own" };
    vec![
        format!("copy {} to {program}", config::host_program(context.world)),
        format!("write {}", context.layout.host_file()),
        format!("start it {how}"),
    ]
}

pub(super) async fn reach(context: &mut Context<'_>) -> Result<Reached> {
    let mesh = context.mesh()?.clone();
    let failed = |error: durable::DurableError| Failure::of(Code::Io, &error);
    let program = context.layout.programs().join(HOST_PROGRAM);
    let source = config::host_program(context.world);
    let bytes = std::fs::read(&source).map_err(|error| {
        Failure::because(Code::BinaryMissing, &format!("{source} cannot be read"), &error)
    })?;
    for folder in [context.layout.programs(), context.layout.host()] {
        durable::ensure_folder(&folder, 0o700).map_err(failed)?;
    }
    // A host that runs is not replaced under its feet: that is an upgrade, and not for genesis to do.
    let runs = context.door.observe_if_there().await?.is_some();
    let mut written = Written::WasThere;
    if !runs {
        context.effect(format!("copy {source} to {program}"))?;
        written = durable::write_unless_same(&program, &bytes, 0o755).map_err(failed)?;
        let engine = context.endpoint()?.address.to_string();
        let file = mesh.host_file(engine);
        let text = serde_json::to_vec_pretty(&file).map_err(|error| Failure::of(Code::Internal, &error))?;
        durable::write_unless_same(&context.layout.host_file(), &text, 0o600).map_err(failed)?;
        context.effect("start the host")?;
    }
    let started = daemon::start(context.world, &context.layout, &mesh.mesh).await?;
    let observed = context.door.observe().await?;
    if observed.report.mesh != mesh.mesh {
        return Err(Failure::new(Code::HostRefused, "the host in this root is another mesh's")
            .expected(mesh.mesh.to_string())
            .found(observed.report.mesh.to_string()));
    }
    let text = format!(
        "host {} on {} runs (pid {})",
        observed.report.host_version,
        System::of_this_program(),
        observed.pid
    );
    Ok(match (started, written) {
        (Started::Already, Written::WasThere) => Reached::Already(text),
        _ => Reached::Now(text),
    })
}
