//! A sequence by hand, through everything that members trip over.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use simulation::etcd::{ClusterState, DiskId, Flags, ProcessId, Request};

use super::Pair;

impl Pair {
    pub async fn traps(&mut self) -> Result<()> {
        self.form("a").await?;
        self.joiners_that_start_together_wait_for_each_other().await?;
        self.a_promotion_holds_the_next_add_back().await?;
        self.a_voter_that_comes_back_empty_dies_until_the_leader_changes().await?;
        self.a_removed_member_does_not_come_back().await?;
        self.a_leader_can_remove_itself().await?;
        self.a_seed_without_data_does_not_find_its_cluster_alone().await
    }

    /// Of two voters the second is taken out, and the first killed: it serves again only if the change is written down.
    pub async fn last_voter(&mut self, persist: bool) -> Result<()> {
        self.form("a").await?;
        ensure!(self.add("a", "b").await?);
        self.start("b", ClusterState::Existing, &self.listed()).await?;
        ensure!(self.ask("a", Some("b"), |id| Request::Promote { id }).await?);
        self.wait().await?;
        ensure!(self.ask("a", Some("b"), |id| Request::Remove { id }).await?);
        if persist {
            ensure!(self.ask("a", None, |_| Request::Persist).await?);
        }
        self.stop("a").await?;
        self.start("a", ClusterState::Existing, &["a".to_owned()]).await?;
        self.wait().await?;
        ensure!(self.serving().contains(&"a".to_owned()) == persist, "a serves");
        self.compare().await
    }

    async fn add(&mut self, at: &str, name: &str) -> Result<bool> {
        let peer_url = self.member(name)?.peer_url;
        self.ask(at, None, |_| Request::AddLearner { peer_url: peer_url.clone() }).await
    }

    async fn joiners_that_start_together_wait_for_each_other(&mut self) -> Result<()> {
        ensure!(self.add("a", "b").await? && self.add("a", "c").await?);
        ensure!(!self.add("a", "d").await?, "there are too many learners");
        let mut entries = Vec::new();
        for name in ["a", "b", "c"] {
            entries.push(format!("{name}={}", self.member(name)?.peer_url));
        }
        let began = Instant::now();
        let now = self.tick();
        for name in ["b", "c"] {
            let flags = Flags {
                initial_cluster: entries.join(","),
                initial_cluster_state: ClusterState::Existing,
                ..self.member(name)?
            };
            self.flags.insert(name.to_owned(), flags.clone());
            let process = ProcessId(format!("{name}-together"));
            self.running.insert(name.to_owned(), process.clone());
            self.real.start(&flags)?;
            self.model.start(now, process, name, flags, DiskId(name.to_owned()));
        }
        self.wait_for_status("b").await?;
        self.wait_for_status("c").await?;
        let took = began.elapsed().as_secs();
        self.note(&format!("two joiners started together and served after {took} s"));
        // Up to 7 s, and more if their addresses or ids make them ask each other first.
        ensure!(took < 30, "they took {took} s");
        self.settle().await?;
        self.compare().await?;
        // Ids differ between the two sides, and so may the waits. From here on connections are of one age again.
        for name in ["b", "c"] {
            self.stop(name).await?;
            self.start(name, ClusterState::Existing, &self.listed()).await?;
        }
        self.compare().await
    }

    async fn a_promotion_holds_the_next_add_back(&mut self) -> Result<()> {
        ensure!(self.ask("a", Some("b"), |id| Request::Promote { id }).await?);
        self.settle().await?;
        ensure!(self.ask("a", Some("c"), |id| Request::Promote { id }).await?);
        self.settle().await?;
        ensure!(!self.add("a", "d").await?, "the new voters are too fresh");
        self.wait().await?;
        ensure!(self.add("a", "d").await?);
        self.start("d", ClusterState::Existing, &self.listed()).await?;
        ensure!(self.ask("a", Some("d"), |id| Request::Promote { id }).await?);
        self.settle().await?;
        self.add("a", "e").await?;
        self.write_and_read().await?;
        self.compare().await
    }

    async fn a_voter_that_comes_back_empty_dies_until_the_leader_changes(&mut self) -> Result<()> {
        let leader = self.model_leader().context("a leader")?;
        let mut followers = self.running.keys().filter(|name| **name != leader).cloned();
        let (victim, next) =
            (followers.next().context("a follower")?, followers.next().context("a follower")?);
        self.stop(&victim).await?;
        self.wipe(&victim)?;
        for _ in 0..2 {
            self.start(&victim, ClusterState::Existing, &self.listed()).await?;
            ensure!(!self.running.contains_key(&victim), "{victim} is killed by the leader");
        }
        ensure!(self.ask(&leader, Some(&next), |to| Request::MoveLeader { to }).await?);
        self.settle().await?;
        self.start(&victim, ClusterState::Existing, &self.listed()).await?;
        ensure!(self.running.contains_key(&victim), "{victim} serves");
        self.write_and_read().await?;
        self.compare().await
    }

    async fn a_removed_member_does_not_come_back(&mut self) -> Result<()> {
        self.wait().await?;
        let leader = self.model_leader().context("a leader")?;
        let victim = self.running.keys().find(|name| **name != leader).cloned().context("a follower")?;
        self.stop(&victim).await?;
        ensure!(self.ask(&leader, Some(&victim), |id| Request::Remove { id }).await?);
        self.settle().await?;
        let mut others = self.listed();
        others.push(victim.clone());
        self.start(&victim, ClusterState::Existing, &others).await?;
        ensure!(!self.running.contains_key(&victim), "{victim} is turned away");
        self.compare().await
    }

    async fn a_leader_can_remove_itself(&mut self) -> Result<()> {
        self.wait().await?;
        let leader = self.model_leader().context("a leader")?;
        ensure!(self.ask(&leader, Some(&leader), |id| Request::Remove { id }).await?);
        self.settle().await?;
        ensure!(!self.running.contains_key(&leader), "{leader} is gone");
        self.compare().await
    }

    async fn a_seed_without_data_does_not_find_its_cluster_alone(&mut self) -> Result<()> {
        let name = self.running.keys().next().cloned().context("a member")?;
        self.stop(&name).await?;
        self.wipe(&name)?;
        self.start(&name, ClusterState::Existing, std::slice::from_ref(&name)).await?;
        ensure!(!self.running.contains_key(&name), "{name} finds nobody");
        Ok(())
    }
}
