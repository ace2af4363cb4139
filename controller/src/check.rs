//! What must be true of what was composed, before it is stored or put: no resource twice on a node, no seat
//! with two holders, no holder of a seat that drops out of nowhere or takes one that is not its to take.
//!
//! In: what is known, and the declarations that would replace the present ones. Out: the first
//! contradiction. Not here: what one manifest alone can have wrong; that was refused when it was read.

use std::collections::BTreeMap;

use mesh_protocol::declaration::Declaration;
use mesh_protocol::id::{ModuleName, NodeName, ResourceId, SeatName};

use crate::known::Known;

/// What contradicts what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Two modules declare one resource on one node.
    #[error(
        "on {node}, module {second} declares {id}, which is module {first}'s already: a resource has one module"
    )]
    DuplicateResource {
        /// Where.
        node: NodeName,
        /// Which.
        id: ResourceId,
        /// The one that has it.
        first: ModuleName,
        /// The one that would have it too.
        second: ModuleName,
    },
    /// A resource is adopted and declared.
    #[error("on {node}, {id} would be adopted and declared at once: expected one of the two")]
    AdoptedAndDeclared {
        /// Where.
        node: NodeName,
        /// Which.
        id: ResourceId,
    },
    /// A module would replace what another module declares.
    #[error(
        "on {node}, {id} of module {module} replaces {target}, which module {owner} declares: expected a resource of its own or of no module"
    )]
    ForeignTarget {
        /// Where.
        node: NodeName,
        /// What replaces.
        id: ResourceId,
        /// Whose that is.
        module: ModuleName,
        /// What would be replaced.
        target: ResourceId,
        /// Whose that is.
        owner: ModuleName,
    },
    /// A seat would have two holders.
    #[error("seat {seat} would be held by {first} and by {second}: a seat has one holder in the mesh")]
    TwoHolders {
        /// Which seat.
        seat: SeatName,
        /// One.
        first: Holder,
        /// The other.
        second: Holder,
    },
    /// A seat would go to something that neither is nor replaces its holder.
    #[error(
        "seat {seat} is held by {present}, and {wanted} neither is nor replaces it: a holder goes by a handover on its own node only"
    )]
    NotTheSuccessor {
        /// Which seat.
        seat: SeatName,
        /// Who holds it.
        present: Holder,
        /// Who would.
        wanted: Holder,
    },
    /// A seat would have no holder any more.
    #[error("seat {seat} is held by {present}, and nobody would hold it: a holder goes by a handover only")]
    Abandoned {
        /// Which seat.
        seat: SeatName,
        /// Who holds it.
        present: Holder,
    },
}

/// What holds a seat, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Where.
    pub node: NodeName,
    /// What.
    pub resource: ResourceId,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.resource, self.node)
    }
}

/// Whether the mesh may be as `next` has it: the declarations there take the place of the present ones of
/// their nodes, all others stay.
///
/// # Errors
/// The first contradiction, nodes and seats in their order.
pub fn check(known: &Known, next: &BTreeMap<NodeName, Declaration>) -> Result<(), Box<Contradiction>> {
    for declaration in next.values() {
        check_node(declaration)?;
    }
    let mut after: BTreeMap<&NodeName, &Declaration> = known.declarations.iter().collect();
    after.extend(next);
    check_seats(known, &after)
}

fn check_node(declaration: &Declaration) -> Result<(), Box<Contradiction>> {
    let node = &declaration.node;
    let mut owners: BTreeMap<ResourceId, &ModuleName> = BTreeMap::new();
    for section in &declaration.modules {
        for id in section.resource_ids() {
            if let Some(first) = owners.insert(id.clone(), &section.name) {
                let (node, first, second) = (node.clone(), first.clone(), section.name.clone());
                return Err(Box::new(Contradiction::DuplicateResource { node, id, first, second }));
            }
        }
    }
    if let Some(adopted) = declaration.adopted.iter().find(|adopted| owners.contains_key(&adopted.id)) {
        return Err(Box::new(Contradiction::AdoptedAndDeclared {
            node: node.clone(),
            id: adopted.id.clone(),
        }));
    }
    for section in &declaration.modules {
        for id in section.resource_ids() {
            let Some(target) = section.replaces(&id) else { continue };
            match owners.get(target) {
                Some(owner) if *owner != &section.name => {
                    return Err(Box::new(Contradiction::ForeignTarget {
                        node: node.clone(),
                        module: section.name.clone(),
                        target: target.clone(),
                        owner: (*owner).clone(),
                        id,
                    }));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn check_seats(known: &Known, after: &BTreeMap<&NodeName, &Declaration>) -> Result<(), Box<Contradiction>> {
    let before: BTreeMap<&NodeName, &Declaration> = known.declarations.iter().collect();
    let declared = declared_holders(&before);
    let wanted = declared_holders(after);
    for (seat, holders) in &wanted {
        let Some((holder, successor_of)) = holders.first() else { continue };
        if let Some((second, _)) = holders.get(1) {
            let (seat, first, second) = (seat.clone(), holder.clone(), second.clone());
            return Err(Box::new(Contradiction::TwoHolders { seat, first, second }));
        }
        let mut present = reported_holders(known, seat);
        if present.is_empty() {
            present.extend(declared.get(seat).into_iter().flatten().map(|(holder, _)| holder.clone()));
        }
        let right = |present: &Holder| {
            present.node == holder.node
                && (present.resource == holder.resource || Some(&present.resource) == successor_of.as_ref())
        };
        // A node with a handover under way has two: what is declared is the new one, and it is right if it
        // is or replaces either.
        if let Some(first) = present.first()
            && !present.iter().any(right)
        {
            let (seat, present, wanted) = (seat.clone(), first.clone(), holder.clone());
            return Err(Box::new(Contradiction::NotTheSuccessor { seat, present, wanted }));
        }
    }
    for (seat, holders) in &declared {
        if let Some((present, _)) = holders.first()
            && !wanted.contains_key(seat)
        {
            return Err(Box::new(Contradiction::Abandoned { seat: seat.clone(), present: present.clone() }));
        }
    }
    Ok(())
}

/// The holders of each seat as they are declared, each with what it replaces.
fn declared_holders(
    declarations: &BTreeMap<&NodeName, &Declaration>,
) -> BTreeMap<SeatName, Vec<(Holder, Option<ResourceId>)>> {
    let mut holders: BTreeMap<SeatName, Vec<(Holder, Option<ResourceId>)>> = BTreeMap::new();
    for (node, declaration) in declarations {
        for section in &declaration.modules {
            if let (Some(seat), Some(resource)) = (&section.seat, section.seat_holder()) {
                let replaces = section.replaces(&resource).cloned();
                let holder = Holder { node: (*node).clone(), resource };
                holders.entry(seat.clone()).or_default().push((holder, replaces));
            }
        }
    }
    holders
}

/// Who holds a seat, or tries for it, as the hosts report.
fn reported_holders(known: &Known, seat: &SeatName) -> Vec<Holder> {
    let holder =
        |node: &NodeName, resource: &ResourceId| Holder { node: node.clone(), resource: resource.clone() };
    known
        .reports
        .iter()
        .flat_map(|(node, report)| report.instances.iter().map(move |instance| (node, instance)))
        .filter(|(_, instance)| &instance.seat == seat)
        .map(|(node, instance)| holder(node, &instance.resource))
        .collect()
}

#[cfg(test)]
mod tests;
