//! What the operator asks of etcd, whoever answers.

use async_trait::async_trait;

use crate::{Endpoint, Error, Membership, Status};

/// The calls. `at` names the member that is asked.
#[async_trait]
pub trait Etcd: Send + Sync {
    /// What the member says about itself. Answered locally, also without quorum and by learners.
    async fn status(&self, at: &Endpoint) -> Result<Status, Error>;

    /// The member list, read linearizably: an answer proves that a quorum is alive. Learners refuse this.
    async fn members(&self, at: &Endpoint) -> Result<Membership, Error>;

    /// Adds a member that replicates but does not vote yet.
    async fn add_learner(&self, at: &Endpoint, peer_url: &str) -> Result<Membership, Error>;

    /// Turns a learner that has caught up into a voter.
    async fn promote(&self, at: &Endpoint, id: u64) -> Result<Membership, Error>;

    /// Hands leadership to another voter. Only the leader itself can do that.
    async fn move_leader(&self, at: &Endpoint, to: u64) -> Result<(), Error>;

    /// Takes a member out. A member that is already out is a success.
    async fn remove(&self, at: &Endpoint, id: u64) -> Result<(), Error>;

    /// Commits an entry that changes nothing. etcd writes down how far it has committed only along with the next entry: a
    /// member that is killed before that comes back with the membership of before the last change.
    async fn persist(&self, at: &Endpoint) -> Result<(), Error>;
}
