//! identity: mesh id, keys, credentials and secrets, each made once and kept.
//!
//! In: the inputs. Out: `mesh.json`, the keys, a credential for host, operator and prober each, and the secrets of
//! the controller, the bus and the store; all root-only. Not here: who reads them.

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::bus::identity::{self, MeshKeys, ServerSettings, User};
use mesh_protocol::id::ModuleName;

use super::super::Reached;
use super::super::context::{Context, Touch};
use super::super::parts::Parts;
use crate::machine::ports;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Result};
use crate::prober;
use crate::session::OPERATOR;
use crate::third_party::{self, ThirdParty};
use mesh_durable::{self as durable, checkpoint};

/// Enough letters that two meshes never meet: 26 * 32^9 of them.
const MESH_ID_LENGTH: usize = 10;

pub(super) fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let mut made = 0;
    if context.mesh.is_none() {
        made += 1;
        begin(context)?;
    }
    let layout = context.layout.clone();
    if context.touch == Touch::World {
        let work = context.work_folder();
        for folder in
            [layout.all_secrets(), layout.programs(), layout.host(), work, root_of(&layout.log("x"))]
        {
            durable::ensure_folder(&folder, 0o700).map_err(|error| Failure::of(Code::Io, &error))?;
        }
    }
    let keys = match MeshKeys::load(&layout.identity()).map_err(|error| Failure::of(Code::Io, &error))? {
        Some(keys) => keys,
        None => {
            made += 1;
            let keys = MeshKeys::generate((context.world.clock)());
            if context.shall("make the mesh's keys")? {
                let save = || keys.save(&layout.identity());
                let saved = checkpoint::around(|| "keep the mesh's keys".to_owned(), save);
                saved.map_err(|error| Failure::of(Code::Io, &error))?;
            }
            keys
        }
    };
    made += credentials(context, &keys)?;
    made += secrets(context, &keys)?;
    let mesh = context.mesh()?;
    let text = format!("mesh {} ({}), node {}", mesh.inputs.name, mesh.mesh, mesh.inputs.node);
    Ok(if made == 0 { Reached::Already(text) } else { Reached::Now(text) })
}

fn root_of(path: &Utf8Path) -> Utf8PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

fn begin<P: Parts>(context: &mut Context<'_, P>) -> Result<()> {
    let inputs = context.inputs(|| {
        ports::free_port().map_err(|error| Failure::because(Code::PortTaken, "no port is free", &error))
    })?;
    let label = context.world.random_label(MESH_ID_LENGTH);
    let label = label.map_err(|error| Failure::because(Code::Io, "no randomness", &error))?;
    let id = label.parse().map_err(|error| Failure::of(Code::Internal, &error))?;
    let mesh = MeshFile::new(id, (context.world.clock)(), inputs);
    if context.shall(format!("begin mesh {} in {}", mesh.inputs.name, mesh.inputs.root))? {
        mesh.write(&context.layout)?;
    }
    context.mesh = Some(mesh);
    Ok(())
}

/// A credential has a key of its own that nothing else tells: what is there stays.
fn credentials<P: Parts>(context: &mut Context<'_, P>, keys: &MeshKeys) -> Result<u32> {
    let mesh = context.mesh()?.clone();
    let layout = context.layout.clone();
    let operator = OPERATOR.parse().map_err(|error| Failure::of(Code::Internal, &error))?;
    let controller = context.controller()?.module.manifest.name;
    let secret = |name: &str| layout.secrets(&controller).join(name);
    let wanted = [
        (layout.credential("host"), User::Host(mesh.inputs.node.clone())),
        (layout.credential(OPERATOR), User::Operator(operator)),
        (layout.credential(prober::CREDENTIAL), User::Prober),
        (secret("seat.creds"), User::ControllerSeat),
        (secret("state.creds"), User::ControllerState),
    ];
    let mut made = 0;
    for (path, user) in wanted {
        if path.is_file() {
            continue;
        }
        let text = identity::credential(keys, &mesh.mesh, &user, (context.world.clock)());
        let text = text.map_err(|error| Failure::of(Code::Internal, &error))?;
        made += keep(context, &path, text.as_bytes())?;
    }
    Ok(made)
}

/// The configurations follow from keys and inputs: they are what they should be, or are written again.
fn secrets<P: Parts>(context: &mut Context<'_, P>, keys: &MeshKeys) -> Result<u32> {
    let mesh = context.mesh()?.clone();
    let layout = context.layout.clone();
    let place = |module: &ModuleName, name: &str| layout.secrets(module).join(name);
    let bus = ThirdParty::Bus.module()?;
    let settings = ServerSettings {
        listen: format!("127.0.0.1:{}", mesh.inputs.bus_port),
        store_dir: layout.data(&bus),
    };
    let text = identity::server_configuration(keys, &mesh.mesh, &settings);
    let text = text.map_err(|error| Failure::of(Code::Internal, &error))?;
    let mut made = keep(context, &place(&bus, "nats.conf"), text.as_bytes())?;
    let store = ThirdParty::Store.module()?;
    let text = third_party::store_configuration(mesh.inputs.store_port, &layout.data(&store));
    made += keep(context, &place(&store, "config.yml"), text.as_bytes())?;
    Ok(made)
}

fn keep<P: Parts>(context: &mut Context<'_, P>, path: &Utf8Path, bytes: &[u8]) -> Result<u32> {
    if std::fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(0);
    }
    if context.shall(format!("write {path}"))? {
        let failed = |error: durable::DurableError| Failure::of(Code::Io, &error);
        durable::ensure_folder(&root_of(path), 0o700).map_err(failed)?;
        durable::write(path, bytes, 0o600).map_err(failed)?;
    }
    Ok(1)
}
