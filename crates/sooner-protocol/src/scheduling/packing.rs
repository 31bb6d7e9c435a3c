//! Where the bundles of a placement group go: a pure function of what is known of the nodes.
//!
//! Strict strategies are exact: if a placement exists, it is found. The others are best effort: they take the
//! largest bundles first, each to the best node that has room, and may miss a placement that only a search
//! would find.

use sooner_wire::message::{Bundle, GroupStrategy};
use sooner_wire::strategy::describe_terms;
use sooner_wire::{NodeId, ResourceSet};

use super::policy::{NodeRow, used_share};
use crate::table::Map;

/// Why bundles cannot be placed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unplaced {
    /// The nodes are large enough but in use.
    Busy(String),
    /// The nodes are too few, too small or have other labels.
    Lacking(String),
}

/// A bundle to be placed, with its index in its group.
type Open<'a> = (u32, &'a Bundle);

/// Chooses nodes for the `open` bundles. `taken`: the nodes of the group's placed bundles, one entry each.
///
/// # Errors
/// [`Unplaced`], with a sentence for people.
pub fn place_bundles(
    open: &[(u32, &Bundle)],
    strategy: GroupStrategy,
    taken: &[NodeId],
    rows: &[NodeRow],
) -> Result<Vec<(u32, NodeId)>, Unplaced> {
    let find = |room: Vec<ResourceSet>| match strategy {
        GroupStrategy::StrictPack => on_one(open, taken, rows, &room),
        GroupStrategy::StrictSpread => each_on_its_own(open, taken, rows, &room),
        GroupStrategy::Pack => {
            on_one(open, taken, rows, &room).or_else(|| one_by_one(open, taken, rows, room, true))
        }
        GroupStrategy::Spread => one_by_one(open, taken, rows, room, false),
    };
    if let Some(found) = find(rows.iter().map(|row| row.free.clone()).collect()) {
        return Ok(found);
    }
    let is_feasible = find(rows.iter().map(|row| row.total.clone()).collect()).is_some();
    let needed = sum(open).describe();
    if is_feasible {
        return Err(Unplaced::Busy(format!("waits until {needed} are free for {}", strategy.name())));
    }
    Err(Unplaced::Lacking(lacking(open, strategy, rows, &needed)))
}

fn lacking(open: &[Open<'_>], strategy: GroupStrategy, rows: &[NodeRow], needed: &str) -> String {
    let fits_none = |bundle: &Bundle| !rows.iter().any(|row| suits(bundle, row, &row.total));
    if let Some((index, bundle)) = open.iter().find(|(_, bundle)| fits_none(bundle)) {
        let wanted = bundle.resources.describe();
        let labels = match &bundle.labels[..] {
            [] => String::new(),
            terms => format!(" and labels with {}", describe_terms(terms)),
        };
        return format!("bundle {index} needs {wanted}{labels}: no node of the {} has that", rows.len());
    }
    match strategy {
        GroupStrategy::StrictPack => {
            format!("STRICT_PACK needs one node with {needed}: no node of the {} has that", rows.len())
        }
        GroupStrategy::StrictSpread => format!(
            "STRICT_SPREAD needs a node of its own for each of {} bundles: the cluster has {} that are large enough",
            open.len(),
            rows.iter().filter(|row| open.iter().any(|(_, bundle)| suits(bundle, row, &row.total))).count()
        ),
        GroupStrategy::Pack | GroupStrategy::Spread => {
            format!("the bundles need {needed} together: the {} nodes do not have that", rows.len())
        }
    }
}

fn suits(bundle: &Bundle, row: &NodeRow, room: &ResourceSet) -> bool {
    room.covers(&bundle.resources) && bundle.labels.iter().all(|term| term.is_met(&row.labels))
}

fn sum(open: &[Open<'_>]) -> ResourceSet {
    let mut all = ResourceSet::default();
    open.iter().for_each(|(_, bundle)| all.add(&bundle.resources));
    all
}

/// All bundles on one node, the fullest that has room, so that large nodes stay free for large groups.
fn on_one(
    open: &[Open<'_>],
    taken: &[NodeId],
    rows: &[NodeRow],
    room: &[ResourceSet],
) -> Option<Vec<(u32, NodeId)>> {
    let all = sum(open);
    let is_meant = |row: &NodeRow| taken.iter().all(|node| *node == row.node);
    let candidates = rows.iter().zip(room).filter(|(row, room)| {
        is_meant(row) && room.covers(&all) && open.iter().all(|(_, bundle)| suits(bundle, row, room))
    });
    let (row, _) = candidates.max_by_key(|(row, _)| used_share(row, &all))?;
    Some(open.iter().map(|(index, _)| (*index, row.node)).collect())
}

/// A node of its own for each bundle: a matching, found by augmenting paths.
fn each_on_its_own(
    open: &[Open<'_>],
    taken: &[NodeId],
    rows: &[NodeRow],
    room: &[ResourceSet],
) -> Option<Vec<(u32, NodeId)>> {
    let fits = |bundle: usize, row: usize| {
        !taken.contains(&rows[row].node) && suits(open[bundle].1, &rows[row], &room[row])
    };
    // By node, the bundle that it gets so far; and by bundle, the node.
    let mut matched: Vec<Option<usize>> = vec![None; rows.len()];
    let mut places: Vec<Option<usize>> = vec![None; open.len()];
    for bundle in 0..open.len() {
        let (mut row, came_from) = search_path(bundle, &matched, &fits)?;
        // Back along the path: each bundle on it moves to the node after it.
        loop {
            let mover = came_from[&row];
            matched[row] = Some(mover);
            match places[mover].replace(row) {
                Some(before) => row = before,
                None => break,
            }
        }
    }
    let placed = open.iter().zip(places);
    Some(placed.filter_map(|((index, _), row)| row.map(|row| (*index, rows[row].node))).collect())
}

/// A node without a bundle that can be reached from this bundle, and for each node on the way the bundle that
/// the node would get.
fn search_path(
    bundle: usize,
    matched: &[Option<usize>],
    fits: &impl Fn(usize, usize) -> bool,
) -> Option<(usize, Map<usize, usize>)> {
    let mut came_from: Map<usize, usize> = Map::default();
    let mut open = std::collections::VecDeque::from([bundle]);
    while let Some(mover) = open.pop_front() {
        for (row, holder) in matched.iter().enumerate() {
            if came_from.contains_key(&row) || !fits(mover, row) {
                continue;
            }
            came_from.insert(row, mover);
            match holder {
                None => return Some((row, came_from)),
                Some(holder) => open.push_back(*holder),
            }
        }
    }
    None
}

/// Largest bundle first, each to a node with room: one that has bundles of the group (`pack`), or one with
/// the fewest.
fn one_by_one(
    open: &[Open<'_>],
    taken: &[NodeId],
    rows: &[NodeRow],
    mut room: Vec<ResourceSet>,
    pack: bool,
) -> Option<Vec<(u32, NodeId)>> {
    let mut counts: Vec<usize> =
        rows.iter().map(|row| taken.iter().filter(|node| **node == row.node).count()).collect();
    let mut order: Vec<Open<'_>> = open.to_vec();
    order.sort_by_cached_key(|(index, bundle)| (std::cmp::Reverse(size(bundle, rows)), *index));
    let mut placed = Vec::with_capacity(open.len());
    for (index, bundle) in order {
        let fitting = (0..rows.len()).filter(|at| suits(bundle, &rows[*at], &room[*at]));
        let at = if pack {
            fitting.min_by_key(|at| (counts[*at] == 0, used_share(&rows[*at], &bundle.resources), *at))?
        } else {
            fitting.min_by_key(|at| (counts[*at], used_share(&rows[*at], &bundle.resources), *at))?
        };
        let shortfall = room[at].subtract(&bundle.resources);
        debug_assert!(shortfall.is_empty(), "it fits");
        counts[at] += 1;
        placed.push((index, rows[at].node));
    }
    Some(placed)
}

/// The largest share (in thousandths) that a bundle takes of a resource, on the node that has most of that.
fn size(bundle: &Bundle, rows: &[NodeRow]) -> u64 {
    let share = |(name, amount): (&str, u64)| {
        let most = rows.iter().map(|row| row.total.amount(name)).max().unwrap_or(0);
        let share = (u128::from(amount) * 1000).checked_div(u128::from(most));
        share.map_or(u64::MAX, |share| u64::try_from(share).unwrap_or(u64::MAX))
    };
    bundle.resources.iter().map(share).max().unwrap_or(0)
}
