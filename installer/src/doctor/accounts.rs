//! The accounts that bus, store and controller shall run under.
//!
//! In: the machine's accounts. Out: findings. Not here: making them; the host does.

use std::collections::BTreeSet;

use mesh_protocol::declaration::AccountOrigin;

use super::check::{Finding, expect, wrong};
use super::controller::Source;
use super::intent::Intent;
use super::name::Name;
use crate::machine::accounts::Account;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure};

/// utmp's field, and the limit of what makes accounts.
const LONGEST_NAME: usize = 32;

/// The accounts that the controller's manifest has made, as the system will know them.
pub(super) fn of_controller(intent: &Intent<'_>, source: &Source) -> Option<Vec<String>> {
    let manifest = &source.get()?.module.manifest;
    let made = manifest.accounts.iter().filter(|account| account.origin == AccountOrigin::Made);
    Some(made.map(|account| intent.prefixed(account.name.as_str())).collect())
}

/// Each of these is this mesh's, or can be made. `names` is none where the manifest could not be read.
pub(super) fn free(
    names: Option<&[String]>,
    there: &Result<Vec<Account>, String>,
    mesh: Option<&MeshFile>,
) -> Finding {
    let said = names.map(|names| names.join(", ")).unwrap_or_default();
    let check = expect(format!("account {said} to be this mesh's, or nobody's"));
    let Some(names) = names else {
        return expect("accounts to be this mesh's, or nobody's")
            .skipped(format!("needs what {} looks at", Name::ControllerManifest));
    };
    let there = match there {
        Ok(there) => there,
        Err(why) => {
            let what = format!("the machine's accounts cannot be read: {why}");
            return check.failed(wrong(Code::Io, what, why.clone(), "make /etc/passwd readable"));
        }
    };
    let mark = mesh.map(MeshFile::account_mark);
    let failures: Vec<Failure> =
        names.iter().filter_map(|name| obstacle(name, there, mark.as_deref())).collect();
    if failures.is_empty() {
        return check.met("free, or this mesh's");
    }
    let failure = Failure::all(Code::AccountTaken, "accounts of the controller cannot be had", failures);
    let hint = failure.hint.clone().unwrap_or_else(|| "choose another --prefix".to_owned());
    check.failed(failure.hint(hint))
}

fn obstacle(name: &str, there: &[Account], mark: Option<&str>) -> Option<Failure> {
    if name.len() > LONGEST_NAME {
        return Some(wrong(
            Code::AccountTaken,
            format!("account name {name} is too long: at most {LONGEST_NAME} bytes"),
            format!("{} bytes", name.len()),
            "choose a shorter --prefix",
        ));
    }
    let account = there.iter().find(|account| account.name == name)?;
    (mark != Some(account.gecos.as_str())).then(|| {
        let found = format!("uid {}, {:?}", account.uid, account.gecos);
        let remedy = "choose another --prefix, or remove the account if nobody needs it";
        wrong(Code::AccountTaken, format!("account {name} is there and not of this mesh"), found, remedy)
    })
}

/// Accounts that carry a mesh's mark, of a mesh that is not on this machine any more.
pub(super) fn leftovers(there: &Result<Vec<Account>, String>, living: &BTreeSet<String>) -> Finding {
    let check = expect("no accounts of a mesh that is gone");
    let Ok(there) = there else { return check.skipped("the machine's accounts cannot be read") };
    let of_a_mesh = there.iter().filter_map(|account| {
        let mesh = account.gecos.strip_prefix("mesh ")?;
        mesh.parse::<mesh_protocol::id::MeshId>().ok()?;
        (!living.contains(mesh)).then_some((account.name.as_str(), mesh))
    });
    let left: Vec<(&str, &str)> = of_a_mesh.collect();
    if left.is_empty() {
        return check.met("none");
    }
    let texts: Vec<String> = left.iter().map(|(name, mesh)| format!("{name} (of mesh {mesh})")).collect();
    let remove: Vec<String> = left.iter().map(|(name, _)| format!("userdel {name}")).collect();
    check.warned(wrong(
        Code::LeftBehind,
        format!("accounts are left of meshes that nothing else is known of: {}", texts.join(", ")),
        texts.join(", "),
        format!("if nobody needs them: {}", remove.join("; ")),
    ))
}
