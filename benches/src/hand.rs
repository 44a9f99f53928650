//! The floor: an etcd cluster run by hand. The same Pods and the same calls to etcd as with an operator, in the best
//! order there is (members join one after the other and get their votes at the end), and nobody in between who would
//! have to observe, remember or report anything.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use etcd::{Endpoint, Error, Etcd as _, Membership, Pool};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use tokio::sync::Mutex;

use crate::stage::{LIMIT, Stage, World, address};
use crate::template::{Start, Template};

/// etcd has no event for "I serve now" and "I have caught up": short enough not to be seen in the result.
const PAUSE: Duration = Duration::from_millis(10);

/// A cluster made by hand.
pub struct ByHand<'a> {
    stage: &'a Stage,
    template: &'a Template,
    name: String,
    pool: Pool,
    members: Vec<String>,
    made: usize,
}

impl<'a> ByHand<'a> {
    /// Forms a cluster and returns once all its members serve and vote. Nobody waits for the kubelet's probe: an operator
    /// that asks etcd itself need not either.
    pub async fn form(stage: &'a Stage, template: &'a Template, name: &str, replicas: usize) -> Result<Self> {
        let (name, pool) = (name.to_owned(), Pool::default());
        let mut cluster = Self { stage, template, name, pool, members: Vec::new(), made: 0 };
        let seed = cluster.fresh();
        let service = Template::service(&cluster.name);
        let services = stage.arena.api::<Service>();
        let params = PostParams::default();
        let (service, started) =
            tokio::join!(services.create(&params, &service), cluster.start(&seed, Start::Seed));
        service?;
        started?;
        cluster.members.push(seed);
        cluster.grow(replicas).await?;
        Ok(cluster)
    }

    /// Adds members until there are that many.
    pub async fn grow(&mut self, replicas: usize) -> Result<()> {
        let mut learners = Vec::new();
        let first = self.members.first().cloned().context("a cluster has a member")?;
        self.serves(&first).await?;
        while self.members.len() < replicas {
            learners.push(self.join().await?);
        }
        for id in learners {
            self.promote(id).await?;
        }
        Ok(())
    }

    /// Takes the newest members out until so many are left, and waits until their Pods are gone.
    pub async fn shrink(&mut self, replicas: usize) -> Result<()> {
        let leaving = self.members.split_off(replicas.max(1));
        let seed = self.endpoint(&self.members[0]).await?;
        let list = self.pool.members(&seed).await?;
        let gently = DeleteParams::default();
        let turn = Mutex::new(());
        let leave = async |name: &String| {
            let mine = turn.lock().await;
            self.remove(&seed, id_of(&list, name)?).await?;
            drop(mine);
            self.end(name, true, &gently).await
        };
        try_join_all(leaving.iter().rev().map(leave)).await?;
        if replicas == 0 {
            self.end(&self.members[0], false, &gently).await?;
        }
        self.gone(replicas).await
    }

    /// Waits until no more Pods than that are left.
    async fn gone(&self, replicas: usize) -> Result<()> {
        let prefix = format!("{}-", self.name);
        let left = |world: &World| world.pods.keys().filter(|name| name.starts_with(&prefix)).count();
        self.stage.until("Pods by hand to go", |world| left(world) == replicas).await.map(drop)
    }

    /// Wakes a cluster that was shrunk to nothing.
    pub async fn resume(&mut self, replicas: usize) -> Result<()> {
        let seed = self.members[0].clone();
        let pod = self.template.pod(&self.stage.arena.namespace, &self.name, &seed, &Start::Again);
        self.stage.arena.api::<Pod>().create(&PostParams::default(), &pod).await?;
        self.grow(replicas).await
    }

    /// Suddenly loses the newest member with its data, and puts another one in its place.
    pub async fn replace_newest(&mut self) -> Result<()> {
        let wanted = self.members.len();
        let lost = self.members.pop().context("a cluster has a member")?;
        let seed = self.endpoint(&self.members[0]).await?;
        let list = self.pool.members(&seed).await?;
        self.end(&lost, true, &DeleteParams::default().grace_period(0)).await?;
        self.remove(&seed, id_of(&list, &lost)?).await?;
        self.grow(wanted).await?;
        self.gone(wanted).await
    }

    fn fresh(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", self.name, self.made)
    }

    /// One more learner that serves. Returns its id.
    async fn join(&mut self) -> Result<u64> {
        let member = self.fresh();
        let peer_url = api::names::peer_url(false, &member, &self.name, &self.stage.arena.namespace);
        let seed = self.endpoint(&self.members[0]).await?;
        self.stage.note("Member", &member, "created");
        let list =
            self.retry("adding a learner", async || self.pool.add_learner(&seed, &peer_url).await).await?;
        let row = list.members.iter().find(|row| row.peer_urls.contains(&peer_url));
        let row = row.context("etcd does not list what it has just added")?;
        self.start(&member, Start::Join(&initial_cluster(&list, &member))).await?;
        self.serves(&member).await?;
        self.members.push(member);
        Ok(row.id)
    }

    /// Takes a member out of etcd, and has the others write down that it is out before its data may go.
    async fn remove(&self, seed: &Endpoint, id: u64) -> Result<()> {
        self.retry("removing a member", async || self.pool.remove(seed, id).await).await?;
        self.pool.persist(seed).await.context("writing the membership down")
    }

    async fn promote(&self, id: u64) -> Result<()> {
        let seed = self.endpoint(&self.members[0]).await?;
        let list = self.retry("promoting a learner", async || self.pool.promote(&seed, id).await).await?;
        if let Some(row) = list.members.iter().find(|row| row.id == id) {
            self.stage.note("Member", &row.name, "voter");
        }
        Ok(())
    }

    /// Repeats what etcd is not ready for yet.
    async fn retry<T>(&self, what: &str, mut call: impl AsyncFnMut() -> Result<T, Error>) -> Result<T> {
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(Error::LearnerNotReady | Error::Unhealthy) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error).with_context(|| what.to_owned()),
            }
        }
    }

    /// Creates a member's claim and Pod.
    async fn start(&self, member: &str, start: Start<'_>) -> Result<()> {
        let arena = &self.stage.arena;
        let pod = self.template.pod(&arena.namespace, &self.name, member, &start);
        let params = PostParams::default();
        let (pods, claims) = (arena.api::<Pod>(), arena.api::<PersistentVolumeClaim>());
        match self.template.claim(&self.name, member) {
            Some(claim) => {
                tokio::try_join!(pods.create(&params, &pod), claims.create(&params, &claim))?;
            }
            None => {
                pods.create(&params, &pod).await?;
            }
        }
        Ok(())
    }

    async fn end(&self, member: &str, with_claim: bool, pod: &DeleteParams) -> Result<()> {
        let arena = &self.stage.arena;
        if with_claim && self.template.on_volume() {
            arena
                .api::<PersistentVolumeClaim>()
                .delete(&api::names::pvc(member), &DeleteParams::default())
                .await?;
        }
        arena.api::<Pod>().delete(member, pod).await?;
        Ok(())
    }

    async fn endpoint(&self, member: &str) -> Result<Endpoint> {
        self.stage.find("a Pod by hand to have an address", |world| endpoint(world.pods.get(member)?)).await
    }

    /// Waits until a member answers.
    async fn serves(&self, member: &str) -> Result<()> {
        let at = self.endpoint(member).await?;
        serves(self.stage, &self.pool, &at, member).await
    }
}

/// Waits until a member knows a leader, and notes when.
pub async fn serves(stage: &Stage, pool: &Pool, at: &Endpoint, member: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !pool.status(at).await.is_ok_and(|status| status.leader != 0) {
        if tokio::time::Instant::now() > deadline {
            bail!("waited {} s for {member} to serve", LIMIT.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
    stage.note("Member", member, "serves");
    Ok(())
}

/// Where the etcd in a Pod is reached.
pub fn endpoint(pod: &Pod) -> Option<Endpoint> {
    Some(Endpoint {
        identity: pod.uid()?,
        address: format!("{}:{}", address(pod)?, api::names::CLIENT_PORT),
        authority: pod.name_any(),
        cluster: None,
    })
}

fn id_of(list: &Membership, name: &str) -> Result<u64> {
    let row = list.members.iter().find(|row| row.name == name);
    Ok(row.with_context(|| format!("etcd does not list {name}"))?.id)
}

/// `--initial-cluster` for a member that has just been added: only its own name is not known to etcd yet.
fn initial_cluster(list: &Membership, joiner: &str) -> String {
    let entry = |row: &etcd::Member| {
        let name = if row.name.is_empty() { joiner } else { &row.name };
        Some(format!("{name}={}", row.peer_urls.first()?))
    };
    list.members.iter().filter_map(entry).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joiner_is_told_all_members_and_itself() {
        let row = |id, name: &str, url: &str| etcd::Member {
            id,
            name: name.into(),
            peer_urls: vec![url.into()],
            is_learner: false,
        };
        let list = Membership {
            cluster_id: 1,
            members: vec![row(1, "a", "http://a:2380"), row(2, "", "http://b:2380")],
        };
        assert_eq!(initial_cluster(&list, "b"), "a=http://a:2380,b=http://b:2380");
        assert_eq!(id_of(&list, "a").unwrap(), 1);
        assert!(id_of(&list, "b").is_err());
    }
}
