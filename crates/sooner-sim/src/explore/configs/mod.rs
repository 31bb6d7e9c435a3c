//! The configurations, one file each.

mod actors;
mod awaited;
mod borrowing;
mod checkpoints;
mod leases;
mod lost;
mod nested;
mod unsealed;

use super::Config;

/// The configurations that are searched completely within seconds: they run on every change.
#[must_use]
pub fn small() -> Vec<Config> {
    vec![
        nested::chain(),
        borrowing::arguments(0),
        borrowing::puts(0),
        borrowing::series(0),
        borrowing::puts(1),
        actors::restart(),
        actors::state(0),
        actors::state(1),
        actors::owned(),
        actors::lent(),
        actors::shared(0),
        actors::shared(1),
        actors::unborn(),
        checkpoints::each_call(),
        checkpoints::state(),
        actors::restart().linked("actors-linked", "`actor-restart`, with the control service elsewhere"),
        leases::ahead(),
        lost::chain(),
        lost::put(),
        lost::waited_for(),
        unsealed::sealed(0),
        unsealed::dropped(0),
        awaited::both(0),
        awaited::one(),
        awaited::dropped(),
    ]
}

/// All configurations.
#[must_use]
pub fn all() -> Vec<Config> {
    let mut all = small();
    all.extend([
        nested::parallel(),
        nested::deep(),
        nested::wide(),
        nested::broad(),
        nested::full(),
        borrowing::arguments(1),
        borrowing::series(1),
        borrowing::futures(),
        borrowing::handed(),
        borrowing::returns(),
        borrowing::chain(),
        borrowing::orphans(),
        actors::returned(),
        actors::callers(),
        actors::busy(),
        actors::state(1).linked("actor-state-linked", "`actor-state`, with the control service elsewhere"),
        actors::owned().linked("actor-owned-linked", "`actor-owned`, with the control service elsewhere"),
        actors::lent().linked("actor-lent-linked", "`actor-lent`, with the control service elsewhere"),
        actors::unborn().linked("actor-unborn-linked", "`actor-unborn`, with the control service elsewhere"),
        checkpoints::replayed(),
        checkpoints::twice(),
        checkpoints::callers(),
        checkpoints::replayed()
            .linked("checkpoint-linked", "`checkpoint-replay`, with the control service elsewhere"),
        leases::clients(),
        leases::failing(),
        leases::short(),
        lost::chain_with_a_kill(),
        lost::borrowed(),
        unsealed::sealed(1),
        unsealed::dropped(1),
        awaited::both(1),
    ]);
    all
}
