//! One random step after the other.

use std::time::Duration;

use anyhow::{Result, ensure};
use rand::RngExt;
use simulation::etcd::{ClusterState, GetResult, PutResult, Request};

use super::Pair;

/// More members than these are not added.
const MOST: usize = 5;

impl Pair {
    pub async fn play(&mut self, steps: u32) -> Result<()> {
        self.form("m0").await?;
        if self.rng.random_bool(0.7) {
            self.grow().await?;
        }
        for _ in 0..steps {
            self.step().await?;
            self.settle().await?;
            self.compare().await?;
        }
        Ok(())
    }

    pub(super) async fn form(&mut self, seed: &str) -> Result<()> {
        self.start(seed, ClusterState::New, &[seed.to_owned()]).await?;
        self.compare().await
    }

    /// To three voters, the way the operator does: join first, promote last.
    async fn grow(&mut self) -> Result<()> {
        for name in ["m1", "m2"] {
            let peer_url = self.member(name)?.peer_url;
            self.ask("m0", None, |_| Request::AddLearner { peer_url: peer_url.clone() }).await?;
            self.start(name, ClusterState::Existing, &self.listed()).await?;
        }
        for name in ["m1", "m2"] {
            self.ask("m0", Some(name), |id| Request::Promote { id }).await?;
            // Right after one change the next learner may be an entry behind.
            self.settle().await?;
        }
        self.compare().await
    }

    async fn step(&mut self) -> Result<()> {
        if self.model_leader().is_none() && self.rng.random_bool(0.7) {
            return self.bring_back().await;
        }
        match self.rng.random_range(0..100) {
            0..16 => self.add_one().await,
            16..34 => self.bring_back().await,
            34..50 => self.promote_one().await,
            50..62 => self.remove_one().await,
            62..70 => self.move_leader().await,
            70..75 => self.write_and_read().await,
            75..78 => self.persist().await,
            78..90 => self.stop_one().await,
            90..97 => self.wipe_one().await,
            _ => self.wait().await,
        }
    }

    fn pick(&mut self, from: &[String]) -> Option<String> {
        (!from.is_empty()).then(|| from[self.rng.random_range(0..from.len())].clone())
    }

    pub(super) fn serving(&self) -> Vec<String> {
        let serves = |name: &&String| self.running.get(*name).is_some_and(|id| self.model.serving(id));
        self.running.keys().filter(serves).cloned().collect()
    }

    pub(super) fn listed(&self) -> Vec<String> {
        self.ids.keys().cloned().collect()
    }

    /// Somebody of the list, or once in a while nobody.
    fn subject(&mut self) -> Option<String> {
        let listed = self.listed();
        if self.rng.random_bool(0.1) { None } else { self.pick(&listed) }
    }

    async fn add_one(&mut self) -> Result<()> {
        let Some(at) = self.pick(&self.serving()) else { return Ok(()) };
        let name = if self.listed().len() < MOST && self.rng.random_bool(0.9) {
            format!("m{}", self.flags.len())
        } else {
            "m0".to_owned()
        };
        let peer_url = self.member(&name)?.peer_url;
        if self.rng.random_bool(0.15) {
            // It answers with the same list, which the next comparison reads.
            self.ask(&at, None, |_| Request::AddVoter { peer_url: peer_url.clone() }).await?;
        } else {
            self.ask(&at, None, |_| Request::AddLearner { peer_url: peer_url.clone() }).await?;
        }
        Ok(())
    }

    /// A member that is down: started for the first time, restarted, or back after its removal.
    async fn bring_back(&mut self) -> Result<()> {
        let down: Vec<String> =
            self.flags.keys().filter(|name| !self.running.contains_key(*name)).cloned().collect();
        let Some(name) = self.pick(&down) else { return Ok(()) };
        let mut others = self.listed();
        if self.rng.random_bool(0.15) {
            others.pop();
        }
        if !others.contains(&name) {
            others.push(name.clone());
        }
        self.start(&name, ClusterState::Existing, &others).await
    }

    async fn promote_one(&mut self) -> Result<()> {
        let Some(at) = self.pick(&self.serving()) else { return Ok(()) };
        let about = self.subject();
        self.ask(&at, about.as_deref(), |id| Request::Promote { id }).await?;
        Ok(())
    }

    async fn remove_one(&mut self) -> Result<()> {
        let Some(at) = self.pick(&self.serving()) else { return Ok(()) };
        let about = self.subject();
        self.ask(&at, about.as_deref(), |id| Request::Remove { id }).await?;
        Ok(())
    }

    async fn persist(&mut self) -> Result<()> {
        let Some(at) = self.pick(&self.serving()) else { return Ok(()) };
        self.ask(&at, None, |_| Request::Persist).await.map(drop)
    }

    async fn move_leader(&mut self) -> Result<()> {
        let leader = self.model_leader().filter(|_| self.rng.random_bool(0.7));
        let Some(at) = leader.or_else(|| self.pick(&self.serving())) else { return Ok(()) };
        let about = self.subject();
        let moved = self.ask(&at, about.as_deref(), |to| Request::MoveLeader { to }).await?;
        if moved {
            ensure!(self.model_leader() == about, "the model's leader is {:?}", self.model_leader());
            let began = std::time::Instant::now();
            while self.real_leader().await != about {
                ensure!(began.elapsed() < super::LIMIT, "the real leader is {:?}", self.real_leader().await);
                tokio::time::sleep(super::POLL).await;
            }
        }
        Ok(())
    }

    pub(super) async fn write_and_read(&mut self) -> Result<()> {
        let Some(at) = self.pick(&self.serving()) else { return Ok(()) };
        self.keys += 1;
        let now = self.tick();
        let (id, flags) = (self.running[&at].clone(), self.flags[&at].clone());
        let model = self.model.put(now, &id, self.keys);
        let real = self.real.put(&flags, self.keys).await;
        self.note(&format!("{at}: put {}: {real:?}", self.keys));
        let acknowledged = PutResult::Acknowledged;
        ensure!(
            (real == acknowledged) == (model == acknowledged),
            "put: really {real:?}, in the model {model:?}"
        );
        self.settle().await?;
        for at in self.serving() {
            for key in [1, self.keys] {
                for linearizable in [false, true] {
                    self.read(&at, key, linearizable).await?;
                }
            }
        }
        Ok(())
    }

    async fn read(&mut self, at: &str, key: u64, linearizable: bool) -> Result<()> {
        let now = self.tick();
        let (id, flags) = (self.running[at].clone(), self.flags[at].clone());
        let model = self.model.get(now, &id, key, linearizable);
        // Without a leader it would only cost a timeout on each member.
        if model == GetResult::Failed && self.model_leader().is_none() {
            return Ok(());
        }
        let real = self.real.get(&flags, key, linearizable).await;
        ensure!(real == model, "{at} get {key} ({linearizable}): really {real:?}, in the model {model:?}");
        Ok(())
    }

    async fn stop_one(&mut self) -> Result<()> {
        let running: Vec<String> = self.running.keys().cloned().collect();
        match self.pick(&running) {
            Some(name) => self.stop(&name).await,
            None => Ok(()),
        }
    }

    async fn wipe_one(&mut self) -> Result<()> {
        let listed = self.listed();
        // Alone it would have nobody to come back to.
        let Some(name) = self.pick(&listed).filter(|_| listed.len() > 1) else { return Ok(()) };
        if self.running.contains_key(&name) {
            self.stop(&name).await?;
        }
        self.wipe(&name)?;
        self.start(&name, ClusterState::Existing, &listed).await
    }

    /// Until everybody counts as connected.
    pub(super) async fn wait(&mut self) -> Result<()> {
        self.note("wait");
        tokio::time::sleep(Duration::from_secs(6)).await;
        Ok(())
    }
}
