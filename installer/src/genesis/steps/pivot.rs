//! pivot: the new mesh runs itself.
//!
//! In: images, secrets, a host that never had a declaration. Out: generation 1 held by the host; the bus up; the
//! controller's container answering the seat; the node registered. Not here: what the host makes of generation 1.

use std::collections::BTreeMap;
use std::time::Duration;

use camino::Utf8Path;
use mesh_protocol::declaration::{self, Declaration};
use mesh_protocol::genesis_form;
use mesh_protocol::id::{Digest, Generation, ModuleName, System, Token};
use mesh_protocol::report::SecretHeld;
use mesh_protocol::section::{self, NodeContext};

use super::super::Reached;
use super::super::context::{Context, Touch};
use super::super::parts::Parts;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Result};
use crate::third_party::ThirdParty;

/// Two containers and a stream or ten take a second or two; a starved machine takes many times that.
const LIMIT: Duration = Duration::from_secs(90);

const POLL: Duration = Duration::from_millis(25);

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let host = context.parts.host().await?;
    let held = host.declaration.as_ref().map(|declaration| declaration.generation);
    never_again(context.mesh()?)?;
    match held {
        None => {
            super::images::still_there(context).await?;
            if context.shall("give the host generation 1")? {
                let declaration = generation_one(context)?;
                context.parts.pivot(declaration).await?;
            }
        }
        Some(generation) => context.say(format!("the host has generation {generation} already")),
    }
    if context.touch == Touch::World {
        wait(context).await?;
        let now = (context.world.clock)();
        context.change_mesh(|mesh| {
            mesh.seat_answered.get_or_insert(now);
        })?;
    }
    let text =
        "the bus is up, the controller's container answers its seat, the node is registered".to_owned();
    Ok(Reached::Now(text))
}

/// Whatever was decided from what was seen: no container is raised for a controller that was a process.
fn never_again(mesh: &MeshFile) -> Result<()> {
    if mesh.process_since.is_none() {
        return Ok(());
    }
    let what = "the controller of this mesh is a process: no container is raised for it";
    Err(Failure::new(Code::WasAProcess, what)
        .hint("see mesh status; the host's folder was lost? then a backup helps: mesh restore"))
}

/// The bus as it will be pushed, and the controller as its genesis form says.
fn generation_one<P: Parts>(context: &Context<'_, P>) -> Result<Declaration> {
    let mesh = context.mesh()?;
    let secrets = held_secrets(context)?;
    let missing = |what: &str| Failure::new(Code::Internal, format!("{what} before images"));
    let image = context.images.bus.as_ref().ok_or_else(|| missing("the bus's section"))?;
    let bus = ThirdParty::Bus.manifest(image)?;
    let no_bundles = BTreeMap::new();
    let node = NodeContext {
        system: System::of_this_program(),
        bundles: &no_bundles,
        secrets: &secrets,
        revision: 0,
    };
    let lacks = |module: &ModuleName, lacks: Vec<String>| {
        Failure::new(Code::Missing, format!("{module} cannot be composed")).details(lacks)
    };
    let bus = section::compose(&bus, &node)
        .map_err(|missing| lacks(&bus.name, missing.iter().map(ToString::to_string).collect()))?;
    let source = context.controller()?;
    let manifest = &source.module.manifest;
    let image = context.images.controller.as_ref().ok_or_else(|| missing("the controller's section"))?;
    let controller = genesis_form::section(&source.form, manifest, image, &secrets)
        .map_err(|errors| lacks(&manifest.name, errors.iter().map(ToString::to_string).collect()))?;
    let mut modules = vec![bus, controller];
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    let mut declaration = Declaration {
        format: declaration::FORMAT,
        mesh: mesh.mesh.clone(),
        node: mesh.inputs.node.clone(),
        generation: Generation::FIRST,
        token: Token::default(),
        issued: Vec::new(),
        plan: None,
        modules,
        adopted: Vec::new(),
    };
    declaration.issued = vec![declaration.issued()];
    Ok(declaration)
}

/// The secrets that lie in the mesh's folder, as the host reports them.
fn held_secrets<P: Parts>(context: &Context<'_, P>) -> Result<Vec<SecretHeld>> {
    let failed = |path: &Utf8Path, error: &std::io::Error| {
        Failure::because(Code::Io, &format!("secrets in {path} cannot be read"), error)
    };
    let mut held = Vec::new();
    let all = context.layout.all_secrets();
    for module in all.read_dir_utf8().map_err(|error| failed(&all, &error))?.flatten() {
        let Ok(name) = module.file_name().parse::<ModuleName>() else { continue };
        let folder = module.path();
        for secret in folder.read_dir_utf8().map_err(|error| failed(folder, &error))?.flatten() {
            let bytes = std::fs::read(secret.path()).map_err(|error| failed(secret.path(), &error))?;
            let digest = Digest::of(&bytes);
            held.push(SecretHeld { module: name.clone(), name: secret.file_name().to_owned(), digest });
        }
    }
    held.sort();
    Ok(held)
}

/// Waits for each part in turn, so that what is missing has a name.
async fn wait<P: Parts>(context: &mut Context<'_, P>) -> Result<()> {
    let mesh = context.mesh()?.clone();
    let deadline = tokio::time::Instant::now() + LIMIT;
    while let Some(waiting_for) = context.parts.awaited(&mesh).await? {
        context.waits(&waiting_for);
        if tokio::time::Instant::now() > deadline {
            return Err(Failure::new(Code::NotReached, "the mesh did not come up")
                .expected(format!("all of it within {} s", LIMIT.as_secs()))
                .found(format!("it still waits for {waiting_for}"))
                .hint("see mesh status, mesh logs host and docker ps -a; the same command waits again"));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_was_a_process_gets_no_container() {
        let mut mesh = MeshFile::new(
            "m1".parse().unwrap(),
            jiff::Timestamp::UNIX_EPOCH,
            crate::mesh_file::tests::inputs(),
        );
        never_again(&mesh).unwrap();
        mesh.process_since = Some(jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(never_again(&mesh).unwrap_err().code, Code::WasAProcess);
    }
}
