//! Observe: everything known about one cluster, as plain data. Objects come from the cache, facts about etcd from etcd
//! itself, asked in this pass. Nothing is decided here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::{EtcdMember, names};
use etcd::{Endpoint, Etcd, Membership, Status};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use planner::{ClusterView, Kind, MemberView, Seen, Settings, Stray};

use crate::ambient::Ambient;
use crate::cache::{Entry, Key};
use crate::stranded::Strandings;

/// How long a list is waited for from members that are too few to have one. What we know of the voters may be old, so
/// they are asked all the same; but a lost quorum has to be told within a second.
const HASTE: Duration = Duration::from_millis(300);

/// Reads.
pub struct Observer {
    pub etcd: Arc<dyn Etcd>,
    pub strandings: Strandings,
    pub settings: Settings,
    pub ambient: Arc<dyn Ambient>,
}

impl Observer {
    /// What the cache has.
    pub fn collect(&self, key: &Key, entry: Entry) -> ClusterView {
        view(key, entry, self.settings.clone(), self.ambient.entropy())
    }

    /// What has to be asked for.
    pub async fn ask(&self, view: &mut ClusterView) {
        if view.is_supported() {
            self.ask_etcd(view).await;
        }
        self.strandings.look(view).await;
    }

    /// Everybody at once. Whoever has left etcd is shutting down and slow to answer, so nobody waits for its word.
    async fn ask_etcd(&self, view: &mut ClusterView) {
        let mut questions = Questions::default();
        for (index, member) in view.members.iter().enumerate() {
            if let Some(at) = endpoint(view, member) {
                questions.unanswered.insert(index);
                questions.asked.push(async move { (index, self.etcd.status(&at).await) }.boxed());
            }
        }
        questions.hear(view, |member| !member.is_deleting()).await;
        let mut list = self.ask_for_members(view).await;
        let asked = voters(view).len();
        match &list {
            Ok(Some(seen)) => questions.hear(view, |member| member.row_in(&seen.fact).is_some()).await,
            _ => questions.hear(view, |_| true).await,
        }
        if !matches!(list, Ok(Some(_))) && voters(view).len() > asked {
            list = self.ask_for_members(view).await;
        }
        match list {
            Ok(Some(seen)) => view.etcd.membership = Some(seen),
            Ok(None) => view.etcd.failure = first_failure(view),
            Err(error) => view.etcd.failure = Some(error),
        }
    }

    /// The linearizable list, from the first of [`voters`] that has it.
    async fn ask_for_members(&self, view: &ClusterView) -> Result<Option<Seen<Membership>>, etcd::Error> {
        let voters = voters(view);
        let limit = if is_minority(view, voters.len()) { HASTE } else { Duration::MAX };
        let mut failure = None;
        for member in voters {
            let Some(endpoint) = endpoint(view, member) else { continue };
            let asked = tokio::time::timeout(limit, self.etcd.members(&endpoint)).await;
            match asked.unwrap_or_else(|_| Err(late(member, limit))) {
                Ok(fact) => return Ok(Some(Seen { fact, from: member.name().to_owned() })),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(None), Err)
    }
}

/// Statuses that have been asked for, by the number of the member.
#[derive(Default)]
struct Questions<'a> {
    asked: FuturesUnordered<BoxFuture<'a, (usize, Result<Status, etcd::Error>)>>,
    unanswered: BTreeSet<usize>,
}

impl Questions<'_> {
    /// Takes answers in until there is one from everybody who matters.
    async fn hear(&mut self, view: &mut ClusterView, matters: impl Fn(&MemberView) -> bool) {
        while self.unanswered.iter().any(|&index| matters(&view.members[index]))
            && let Some((index, answer)) = self.asked.next().await
        {
            self.unanswered.remove(&index);
            view.members[index].etcd = Some(answer);
        }
    }
}

/// Whom to ask for the list: whoever is most likely to have it, the leader, then other voters. Members that know no leader
/// are not asked, they would only let the question time out.
pub fn voters(view: &ClusterView) -> Vec<&MemberView> {
    let mut voters: Vec<(&MemberView, &Status)> = view
        .members
        .iter()
        .filter_map(|m| Some((m, m.serving()?)))
        .filter(|(_, status)| !status.is_learner && status.leader != 0)
        .collect();
    voters.sort_by_key(|(member, status)| (member.is_deleting(), status.member_id != status.leader));
    voters.into_iter().map(|(member, _)| member).collect()
}

/// Whether fewer than a quorum of the voters we know of are there to answer for one.
pub fn is_minority(view: &ClusterView, answering: usize) -> bool {
    let voters = view.members.iter().filter(|m| m.member.status.as_ref().is_some_and(|s| s.is_voter)).count();
    answering < voters / 2 + 1
}

fn late(member: &MemberView, limit: Duration) -> etcd::Error {
    etcd::Error::Timeout { member: member.name().to_owned(), limit }
}

fn first_failure(view: &ClusterView) -> Option<etcd::Error> {
    view.members.iter().find_map(|m| m.etcd.as_ref()?.as_ref().err().cloned())
}

/// What the cache has of a cluster; etcd has not been asked yet.
pub fn view(key: &Key, mut entry: Entry, settings: Settings, entropy: u64) -> ClusterView {
    let with_belongings = |(name, member): (String, EtcdMember)| MemberView {
        member,
        pod: entry.pods.remove(&name),
        volume: entry.volumes.remove(&names::pvc(&name)),
        ..MemberView::default()
    };
    let members = entry.members.into_iter().map(with_belongings).collect();
    // What is left over belongs to nobody here.
    let stray = |kind, metadata: &ObjectMeta| Stray {
        kind,
        name: metadata.name.clone().unwrap_or_default(),
        // The garbage collector takes along what a member had.
        leaving: metadata.deletion_timestamp.is_some() || is_members(metadata),
    };
    let pods = entry.pods.values().map(|p| stray(Kind::Pod, &p.metadata));
    let claims = entry.volumes.values().map(|v| stray(Kind::Claim, &v.metadata));
    ClusterView {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        cluster: entry.clusters.remove(&key.name),
        strays: pods.chain(claims).collect(),
        members,
        headless_service: entry.services.remove(&names::headless_service(&key.name)),
        client_service: entry.services.remove(&names::client_service(&key.name)),
        budget: entry.budgets.remove(&names::budget(&key.name)),
        settings,
        entropy,
        ..ClusterView::default()
    }
}

/// Whether an EtcdMember controls it.
fn is_members(metadata: &ObjectMeta) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.controller == Some(true) && owner.kind == EtcdMember::kind(&()))
}

/// Where a member can be asked, if it has a Pod with an address. What we know of the Pod may be old and the address
/// somebody else's by now, so an answer counts only if it comes from the cluster's own etcd.
pub fn endpoint(view: &ClusterView, member: &MemberView) -> Option<Endpoint> {
    let pod: &Pod = member.living_pod().or_else(|| member.lingering_pod())?;
    let ip = pod.status.as_ref()?.pod_ip.as_deref().filter(|ip| !ip.is_empty())?;
    let address = if ip.contains(':') { format!("[{ip}]:2379") } else { format!("{ip}:2379") };
    let name = names::dns_name(member.name(), &member.service_name(), member.namespace());
    Some(Endpoint {
        identity: pod.metadata.uid.clone().unwrap_or_default(),
        address,
        authority: format!("{name}:{}", names::CLIENT_PORT),
        cluster: view.etcd_cluster(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use api::{EtcdCluster, conditions};
    use async_trait::async_trait;
    use etcd::Error;
    use k8s_openapi::api::core::v1::PodStatus;

    use super::*;
    use crate::ambient::Real;

    /// What a member takes that does not answer in time.
    const SLOW: Duration = Duration::from_secs(1);

    /// What each member answers, the list, and who was asked for it.
    #[derive(Default)]
    struct Fake {
        members: BTreeMap<String, Result<Status, Error>>,
        listed: Vec<etcd::Member>,
        asked: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl Etcd for Fake {
        async fn status(&self, at: &Endpoint) -> Result<Status, Error> {
            let answer = self.members.get(&at.identity).cloned().unwrap_or(Err(silent()));
            if matches!(answer, Err(Error::Timeout { .. })) {
                tokio::time::sleep(SLOW).await;
            }
            answer
        }

        async fn members(&self, at: &Endpoint) -> Result<Membership, Error> {
            self.asked.lock().unwrap().push(at.identity.clone());
            Ok(Membership { cluster_id: 1, members: self.listed.clone() })
        }

        async fn add_learner(&self, _: &Endpoint, _: &str) -> Result<Membership, Error> {
            Err(silent())
        }

        async fn promote(&self, _: &Endpoint, _: u64) -> Result<Membership, Error> {
            Err(silent())
        }

        async fn move_leader(&self, _: &Endpoint, _: u64) -> Result<(), Error> {
            Err(silent())
        }

        async fn remove(&self, _: &Endpoint, _: u64) -> Result<(), Error> {
            Err(silent())
        }

        async fn persist(&self, _: &Endpoint) -> Result<(), Error> {
            Err(silent())
        }
    }

    fn silent() -> Error {
        Error::Unreachable { member: "x".into() }
    }

    fn answer(id: u64, leader: u64, is_learner: bool) -> Result<Status, Error> {
        Ok(Status {
            cluster_id: 1,
            member_id: id,
            version: "3.6.16".into(),
            leader,
            is_learner,
            db_size: 0,
            raft_term: 1,
            raft_applied_index: 1,
            errors: vec![],
        })
    }

    fn member(name: &str) -> MemberView {
        let mut member = EtcdCluster::test("ns", "c").latched().member(name);
        member.metadata.uid = Some(format!("uid-{name}"));
        let mut pod = Pod::default();
        pod.metadata.uid = Some(name.to_owned());
        pod.metadata.owner_references = member.controller_owner_ref(&()).map(|owner| vec![owner]);
        pod.status = Some(PodStatus { pod_ip: Some("10.0.0.1".into()), ..PodStatus::default() });
        MemberView { member, pod: Some(pod), ..MemberView::default() }
    }

    /// Who is asked for the list, of members that answer like that.
    async fn asked(answers: Vec<(MemberView, Result<Status, Error>)>) -> Vec<String> {
        observed(answers, vec![]).await.1
    }

    /// What is seen of members that answer like that and have that list, and who was asked for it.
    async fn observed(
        answers: Vec<(MemberView, Result<Status, Error>)>,
        listed: Vec<etcd::Member>,
    ) -> (ClusterView, Vec<String>) {
        let id = |m: &MemberView| m.pod.as_ref().and_then(|p| p.metadata.uid.clone()).unwrap();
        let members = answers.iter().map(|(m, answer)| (id(m), answer.clone())).collect();
        let etcd = Arc::new(Fake { members, listed, ..Fake::default() });
        let nobody = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let observer = Observer {
            strandings: Strandings::new(kube::Client::try_from(nobody).unwrap()),
            etcd: etcd.clone(),
            settings: Settings::default(),
            ambient: Arc::new(Real),
        };
        let mut view =
            ClusterView { members: answers.into_iter().map(|(m, _)| m).collect(), ..Default::default() };
        observer.ask_etcd(&mut view).await;
        let asked = etcd.asked.lock().unwrap().clone();
        (view, asked)
    }

    #[test]
    fn what_somebody_elses_controller_keeps_is_not_about_to_go() {
        let pod = |kind: &str| {
            let mut pod = member("a").pod.unwrap_or_default();
            pod.metadata.owner_references.as_mut().unwrap()[0].kind = kind.to_owned();
            pod
        };
        let leaving = |kind: &str| {
            let key = Key { namespace: "ns".into(), name: "c".into() };
            let entry = Entry { pods: [("x".to_owned(), pod(kind))].into(), ..Entry::default() };
            view(&key, entry, Settings::default(), 0).strays[0].leaving
        };
        assert!(leaving("EtcdMember"));
        assert!(!leaving("ReplicaSet"));
    }

    fn leaving(name: &str) -> MemberView {
        let mut member = member(name);
        let at = conditions::wire_time(jiff::Timestamp::UNIX_EPOCH);
        member.member.metadata.deletion_timestamp = Some(at);
        member
    }

    fn row(name: &str) -> etcd::Member {
        let name = member(name).name().to_owned();
        etcd::Member { id: 1, name, peer_urls: vec![], is_learner: false }
    }

    fn slow() -> Result<Status, Error> {
        Err(Error::Timeout { member: "x".into(), limit: SLOW })
    }

    #[tokio::test]
    async fn t14_any_voter_can_be_asked_not_the_seed_alone() {
        let voters = vec![(member("a"), Err(silent())), (member("b"), answer(2, 2, false))];
        assert_eq!(asked(voters).await, ["b"]);
    }

    #[tokio::test]
    async fn t15_h22_h23_learners_are_not_asked_for_the_list() {
        let both = vec![(member("a"), answer(1, 2, true)), (member("b"), answer(2, 2, false))];
        assert_eq!(asked(both).await, ["b"]);
    }

    #[tokio::test]
    async fn h12_members_whose_pod_is_ending_are_not_asked() {
        let mut ending = member("a");
        let at = conditions::wire_time(jiff::Timestamp::UNIX_EPOCH);
        ending.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(at);
        let both = vec![(ending, answer(1, 1, false)), (member("b"), answer(2, 1, false))];
        assert_eq!(asked(both).await, ["b"]);
    }

    #[tokio::test]
    async fn the_leader_is_asked_first() {
        let both = vec![(member("a"), answer(1, 2, false)), (member("b"), answer(2, 2, false))];
        assert_eq!(asked(both).await, ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_the_word_of_a_member_that_is_out() {
        let began = tokio::time::Instant::now();
        let both = vec![(member("a"), answer(1, 1, false)), (leaving("b"), slow())];
        let (view, _) = observed(both, vec![row("a")]).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(view.etcd.membership.is_some() && view.members[1].etcd.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_word_of_a_member_that_is_still_in_is_waited_for() {
        let both = vec![(member("a"), answer(1, 1, false)), (leaving("b"), slow())];
        let (view, asked) = observed(both, vec![row("a"), row("b")]).await;
        assert_eq!(view.members[1].etcd, Some(slow()));
        assert_eq!(asked, ["a"], "one list is enough");
    }

    #[tokio::test]
    async fn members_that_all_leave_can_be_asked_all_the_same() {
        let (view, asked) = observed(vec![(leaving("a"), answer(1, 1, false))], vec![row("a")]).await;
        assert!(view.etcd.membership.is_some());
        assert_eq!(asked, ["a"]);
    }
}
