//! One bootstrap, moment by moment, with the operator and by hand: what waited for what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use etcd::Pool;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

use crate::hand::{self, ByHand};
use crate::progress::Step;
use crate::ready::{Medium, template};
use crate::stage::{Journal, Stage};
use crate::stats::Sample;
use crate::target::Target;

/// How one cluster of three came about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Timeline {
    pub title: String,
    /// Seconds until it was ready.
    pub ready: f64,
    /// Of the cluster as a whole: seconds by state.
    pub cluster: BTreeMap<String, f64>,
    /// In the order they were made.
    pub members: Vec<Member>,
}

/// How one member came about: seconds by `kind: state`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Member {
    pub name: String,
    pub moments: BTreeMap<String, f64>,
}

/// What a member's time is spent on, from one moment to the next: name, from, to. Where a moment is missing (nobody tells
/// by hand that a member was told) the phase is left out.
pub const PHASES: [(&str, &str, &str); 6] = [
    ("etcd takes it in, it is told whom to join", "EtcdMember: created", "Pod: created"),
    ("scheduler (with a volume: until it is made)", "Pod: created", "Pod: scheduled"),
    ("kubelet: volume, network, start", "Pod: scheduled", "Pod: started"),
    ("etcd starts and joins", "Pod: started", "Member: serves"),
    ("kubelet: probe", "Member: serves", "Pod: ready"),
    ("vote", "Pod: ready", "Member: voter"),
];

/// What members of a fleet wait for: name, from, to.
pub const WAITS: [(&str, &str, &str); 5] = [
    ("EtcdMember → Pod", "EtcdMember: created", "Pod: created"),
    ("claim → bound", "PersistentVolumeClaim: created", "PersistentVolumeClaim: bound"),
    ("Pod → scheduled", "Pod: created", "Pod: scheduled"),
    ("scheduled → ready", "Pod: scheduled", "Pod: ready"),
    ("ready → voter", "Pod: ready", "Member: voter"),
];

/// The medians of what all members in a journal waited for.
pub fn waits(journal: &Journal, began: Instant) -> BTreeMap<String, f64> {
    let members = Timeline::read("", journal, began, began).members;
    let median = |(name, from, to): (&str, &str, &str)| {
        let wait = |member: &Member| Some((member.moments.get(to)? - member.moments.get(from)?).max(0.0));
        let sample = Sample(members.iter().filter_map(wait).collect());
        Some((name.to_owned(), sample.median()?))
    };
    WAITS.into_iter().filter_map(median).collect()
}

/// One cluster of three on volumes, with the operator, then by hand.
pub async fn measure(target: &Target) -> Result<Vec<Timeline>> {
    let step = Step::begin("one bootstrap, moment by moment");
    let stage = Arc::new(Stage::open(&target.client).await?);
    let began = Instant::now();
    let cluster = stage.arena.create("my-etcd", Medium::Volumes.spec(3)).await?;
    let watching = tokio::spawn(listen(Arc::clone(&stage)));
    let ready = stage.until("a cluster to be ready", |world| world.is_settled("my-etcd", 3)).await?;
    watching.abort();
    let _ = watching.await;
    let operator = Timeline::read("with the operator", &stage.journal(), began, ready);
    let pattern = template(&stage, &cluster)?;
    Arc::into_inner(stage).context("somebody still listens")?.close().await?;

    let stage = Stage::open(&target.client).await?;
    let began = Instant::now();
    let _cluster = ByHand::form(&stage, &pattern, "my-etcd", 3).await?;
    let by_hand = Timeline::read("by hand", &stage.journal(), began, Instant::now());
    stage.close().await?;
    step.done(&format!("{:.2} and {:.2} by hand", operator.ready, by_hand.ready));
    Ok(vec![operator, by_hand])
}

/// Asks every Pod that gets an address whether its etcd serves: no object tells of that.
async fn listen(stage: Arc<Stage>) -> Result<()> {
    let pool = Arc::new(Pool::default());
    let mut asked = Vec::new();
    loop {
        let at = stage
            .find("another Pod with an address", |world| {
                let mut endpoints =
                    world.pods.values().filter_map(|pod| Some((pod.name_any(), hand::endpoint(pod)?)));
                endpoints.find(|(name, _)| !asked.contains(name))
            })
            .await?;
        asked.push(at.0.clone());
        let (stage, pool) = (Arc::clone(&stage), Arc::clone(&pool));
        tokio::spawn(async move { hand::serves(&stage, &pool, &at.1, &at.0).await });
    }
}

impl Timeline {
    fn read(title: &str, journal: &Journal, began: Instant, ready: Instant) -> Self {
        let seconds = |at: Instant| at.saturating_duration_since(began).as_secs_f64();
        let mut timeline = Self { title: title.to_owned(), ready: seconds(ready), ..Self::default() };
        let mut members: BTreeMap<String, Member> = BTreeMap::new();
        for ((kind, name, state), at) in journal {
            if kind == "EtcdCluster" {
                timeline.cluster.insert((*state).to_owned(), seconds(*at));
                continue;
            }
            let member = name.strip_prefix("data-").unwrap_or(name).to_owned();
            let entry = members
                .entry(member.clone())
                .or_insert_with(|| Member { name: member, ..Default::default() });
            // By hand there is no EtcdMember, but there is the moment somebody begins to add one.
            let kind = match (kind.as_str(), *state) {
                ("Member", "created") => "EtcdMember",
                ("EtcdMember", "voter") => "Member",
                (kind, _) => kind,
            };
            entry.moments.insert(format!("{kind}: {state}"), seconds(*at));
        }
        timeline.members = members.into_values().collect();
        timeline.members.sort_by(|a, b| a.begins().total_cmp(&b.begins()));
        timeline
    }
}

impl Member {
    pub fn begins(&self) -> f64 {
        self.moments.values().copied().fold(f64::INFINITY, f64::min)
    }

    /// The phases it went through: index into [`PHASES`], from, to.
    pub fn phases(&self) -> Vec<(usize, f64, f64)> {
        let moment = |name: &str| self.moments.get(name).copied();
        let phase = |(index, (_, from, to)): (usize, &(&str, &str, &str))| {
            Some((index, moment(from)?, moment(to)?)).filter(|(_, from, to)| from < to)
        };
        PHASES.iter().enumerate().filter_map(phase).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_become_phases_of_members_in_the_order_they_were_made() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let moment = |kind: &str, name: &str, state| (kind.to_owned(), name.to_owned(), state);
        let journal = Journal::from([
            (moment("EtcdCluster", "c", "formed"), at(900)),
            (moment("EtcdMember", "c-b", "created"), at(100)),
            (moment("Pod", "c-b", "created"), at(150)),
            (moment("Pod", "c-b", "scheduled"), at(400)),
            (moment("PersistentVolumeClaim", "data-c-b", "bound"), at(300)),
            (moment("EtcdMember", "c-a", "created"), at(1000)),
        ]);
        let timeline = Timeline::read("x", &journal, began, at(2000));
        assert_eq!(timeline.members.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["c-b", "c-a"]);
        assert_eq!(timeline.members[0].phases(), [(0, 0.1, 0.15), (1, 0.15, 0.4)]);
        assert!((timeline.cluster["formed"] - 0.9).abs() < 1e-9);
        assert!((timeline.ready - 2.0).abs() < 1e-9);
        let waits = waits(&journal, began);
        assert!((waits["Pod → scheduled"] - 0.25).abs() < 1e-9);
        assert!(!waits.contains_key("ready → voter"), "nobody came so far");
    }
}
