//! Passes played by hand: what is asked, in which order, and what answers lead to.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{EtcdCluster, conditions, labels};
use etcd::{Membership, Status};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::*;
use crate::Kind;
use crate::fixtures::{World, now};

fn around() -> Around<'static> {
    Around { now: Duration::from_secs(1000), wall: now(), leads: true, cache: &() }
}

/// What a player does with a request: answers it, or lets it hang.
type Reply = Option<Result<Answer, Failure>>;

/// Plays a pass to its end, or until nobody answers any more. Returns what was asked.
fn play(pass: &mut Pass, mut reply: impl FnMut(&Request) -> Reply) -> Vec<Request> {
    let (mut asked, mut waiting) = (vec![], vec![]);
    loop {
        match pass.next(&around()) {
            Step::Ask(ticket, request) => {
                waiting.extend(reply(&request).map(|answer| (ticket, answer)));
                asked.push(request);
            }
            Step::Wait if waiting.is_empty() => return asked,
            Step::Wait => {
                let (ticket, answer) = waiting.remove(0);
                pass.hear(ticket, answer, &around());
            }
            Step::Over => return asked,
        }
    }
}

fn refused(reason: &str) -> Failure {
    let status = json!({ "status": "Failure", "reason": reason, "code": 409, "message": "no" });
    Failure::Refused(serde_json::from_value(status).unwrap())
}

mod observing {
    use super::*;

    fn silent() -> etcd::Error {
        etcd::Error::Unreachable { member: "x".into() }
    }

    fn answer(id: u64, leader: u64, is_learner: bool) -> Result<Status, etcd::Error> {
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

    fn leaving(name: &str) -> MemberView {
        let mut member = member(name);
        member.member.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
        member
    }

    fn row(name: &str) -> etcd::Member {
        let name = member(name).name().to_owned();
        etcd::Member { id: 1, name, peer_urls: vec![], is_learner: false }
    }

    #[test]
    fn a_neighbour_that_has_the_address_of_a_pod_by_now_does_not_answer_for_its_member() {
        let recorded = |name: &str, id: u64| {
            let mut member = member(name);
            member.member.status.get_or_insert_default().member_id = Some(api::ids::format(id));
            member
        };
        let members = vec![
            (recorded("a", 1), Some(answer(1, 1, false))),
            (recorded("b", 2), Some(answer(1, 1, false))),
        ];
        let (view, _) = observed(members, &[row("a"), row("b")]);
        let serving: Vec<_> = view.unwrap().members.iter().map(|m| m.serving().is_some()).collect();
        assert_eq!(serving, [true, false]);
        let fresh = vec![(member("a"), Some(answer(1, 1, false)))];
        let (view, _) = observed(fresh, &[row("a")]);
        assert!(view.unwrap().members[0].serving().is_some(), "nobody else is on record as that");
    }

    /// Members that answer like that (or not at all) and have that list: what is seen of them when everybody who matters has
    /// answered, and who was asked for the list.
    fn observed(
        members: Vec<(MemberView, Option<Result<Status, etcd::Error>>)>,
        listed: &[etcd::Member],
    ) -> (Option<ClusterView>, Vec<String>) {
        let id = |m: &MemberView| m.pod.as_ref().and_then(|p| p.metadata.uid.clone()).unwrap();
        let answers: BTreeMap<_, _> = members.iter().map(|(m, answer)| (id(m), answer.clone())).collect();
        let cluster = Some(EtcdCluster::test("ns", "c").latched());
        let members = members.into_iter().map(|(m, _)| m).collect();
        let view =
            ClusterView { namespace: "ns".into(), name: "c".into(), cluster, members, ..Default::default() };
        let mut pass = Pass::begin(view, Memory::default(), Sound, &around());
        let mut lists = vec![];
        play(&mut pass, |request| {
            let Request::Etcd { at, call } = request else { return None };
            match call {
                EtcdCall::Status => {
                    let answer = answers.get(&at.identity)?.clone()?;
                    Some(answer.map(Answer::Status).map_err(Failure::Etcd))
                }
                EtcdCall::Members { .. } => {
                    lists.push(at.identity.clone());
                    let list = Membership { cluster_id: 1, members: listed.to_vec() };
                    Some(Ok(Answer::Members(list)))
                }
                _ => None,
            }
        });
        let planned = pass.told().iter().any(|told| matches!(told, Told::Planned));
        (planned.then(|| pass.view().clone()), lists)
    }

    fn asked(members: Vec<(MemberView, Option<Result<Status, etcd::Error>>)>) -> Vec<String> {
        observed(members, &[]).1
    }

    #[test]
    fn t14_any_voter_can_be_asked_not_the_seed_alone() {
        let voters = vec![(member("a"), Some(Err(silent()))), (member("b"), Some(answer(2, 2, false)))];
        assert_eq!(asked(voters), ["b"]);
    }

    #[test]
    fn t15_h22_h23_learners_are_not_asked_for_the_list() {
        let both = vec![(member("a"), Some(answer(1, 2, true))), (member("b"), Some(answer(2, 2, false)))];
        assert_eq!(asked(both), ["b"]);
    }

    #[test]
    fn h12_members_whose_pod_is_ending_are_not_asked() {
        let mut ending = member("a");
        ending.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(conditions::wire_time(now()));
        let both = vec![(ending, Some(answer(1, 1, false))), (member("b"), Some(answer(2, 1, false)))];
        assert_eq!(asked(both), ["b"]);
    }

    #[test]
    fn the_leader_is_asked_first() {
        let both = vec![(member("a"), Some(answer(1, 2, false))), (member("b"), Some(answer(2, 2, false)))];
        assert_eq!(asked(both), ["b"]);
    }

    #[test]
    fn nobody_waits_for_the_word_of_a_member_that_is_out() {
        let both = vec![(member("a"), Some(answer(1, 1, false))), (leaving("b"), None)];
        let (view, _) = observed(both, &[row("a")]);
        let view = view.expect("it went on without an answer");
        assert!(view.etcd.membership.is_some() && view.members[1].etcd.is_none());
    }

    #[test]
    fn the_word_of_a_member_that_is_still_in_is_waited_for() {
        let hangs = vec![(member("a"), Some(answer(1, 1, false))), (leaving("b"), None)];
        assert!(observed(hangs, &[row("a"), row("b")]).0.is_none());
        let slow = || Err(EtcdCall::Status.silence("x"));
        let both = vec![(member("a"), Some(answer(1, 1, false))), (leaving("b"), Some(slow()))];
        let (view, asked) = observed(both, &[row("a"), row("b")]);
        assert_eq!(view.unwrap().members[1].etcd, Some(slow()));
        assert_eq!(asked, ["a"], "one list is enough");
    }

    #[test]
    fn members_that_all_leave_can_be_asked_all_the_same() {
        let (view, asked) = observed(vec![(leaving("a"), Some(answer(1, 1, false)))], &[row("a")]);
        assert!(view.unwrap().etcd.membership.is_some());
        assert_eq!(asked, ["a"]);
    }
}

mod operating {
    use super::*;
    use operation::{Change, Ended};

    /// Carries an action out; what was asked, what changed, and how it ended.
    fn carry_out(
        world: &World,
        action: &Action,
        mut reply: impl FnMut(&Request) -> Result<Answer, Failure>,
    ) -> (Vec<Request>, Ended) {
        let mut operation = action.operation(&world.view, action.looks(&world.view)).unwrap();
        let mut asked = vec![];
        while let Some(request) = operation.request() {
            let answer = reply(&request);
            asked.push(request);
            if let Some(ended) = operation.hear(answer) {
                return (asked, ended);
            }
        }
        (asked, Ended { change: None, result: Ok(()) })
    }

    fn world() -> World {
        World::settled(EtcdCluster::test("ns", "c"))
    }

    fn removal(world: &World) -> Action {
        let row = &world.view.etcd.membership.as_ref().unwrap().fact.members[0];
        Action::RemoveFromEtcd { member: row.name.clone(), id: row.id, permit: crate::Permit::forged() }
    }

    #[test]
    fn a_member_that_declines_is_followed_by_the_next() {
        let world = world();
        let declines = |_: &Request| Err(Failure::Etcd(etcd::Error::Unhealthy));
        let (asked, ended) = carry_out(&world, &removal(&world), declines);
        assert_eq!(asked.len(), 3);
        assert!(matches!(ended.result, Err(Error::Etcd { source: etcd::Error::Unhealthy, .. })));
        let silent = |_: &Request| Err(Failure::Timeout);
        let (asked, ended) = carry_out(&world, &removal(&world), silent);
        assert_eq!(asked.len(), 1, "silence is no answer, and may have been obeyed");
        assert!(matches!(ended.result, Err(Error::Etcd { source: etcd::Error::Timeout { .. }, .. })));
    }

    #[test]
    fn a_look_that_contradicts_ends_it_before_anything_is_asked_for() {
        let world = world();
        let member = &world.view.members[0];
        let delete = Action::DeletePod {
            name: member.name().to_owned(),
            uid: "x".into(),
            because: crate::Ending::Ended,
            permit: crate::Permit::forged(),
        };
        let runs = json!({ "metadata": { "uid": "x" }, "status": { "phase": "Running" } });
        let (asked, ended) = carry_out(&world, &delete, |_| Ok(Answer::Object(runs.clone())));
        assert!(matches!(asked[..], [Request::Get { kind: Kind::Pod, .. }]), "{asked:?}");
        assert!(matches!(ended.result, Err(Error::Stale(_))));
    }

    #[test]
    fn a_deletion_says_whether_the_object_goes_or_is_gone() {
        let world = world();
        let delete = Action::DeleteBudget { name: "c".into(), uid: "x".into() };
        let leaving = json!({ "metadata": { "uid": "x", "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let (_, ended) = carry_out(&world, &delete, |_| Ok(Answer::Object(leaving.clone())));
        assert_eq!(ended.change, Some(Change::Wrote { kind: Kind::Budget, object: leaving }));
        let gone = Change::Gone { kind: Kind::Budget, name: "c".into(), uid: "x".into() };
        for answer in [Ok(Answer::Gone), Err(refused("NotFound"))] {
            let (_, ended) = carry_out(&world, &delete, |_| answer.clone());
            assert_eq!((ended.change, ended.result), (Some(gone.clone()), Ok(())));
        }
        let (_, ended) = carry_out(&world, &delete, |_| Err(refused("Conflict")));
        assert!(matches!(ended.result, Err(Error::Stale(_))));
    }

    #[test]
    fn t24_a_member_is_not_deleted_before_it_is_on_record_that_the_operator_wanted_that() {
        let world = world();
        let because = crate::Leaving::Outdated;
        let delete = Action::DeleteMember {
            name: "m".into(),
            uid: "x".into(),
            because,
            permit: crate::Permit::forged(),
        };
        let carry_out = |record: Result<Answer, Failure>| {
            let mut operation = delete.operation(&world.view, vec![]).unwrap();
            let first = operation.request().unwrap();
            let note = json!({ labels::annotation::TAKEN_OUT: "true" });
            assert!(
                matches!(&first, Request::Patch { patch, .. } if patch["metadata"]["annotations"] == note)
            );
            (operation.hear(record), operation.request())
        };
        let kept = json!({ "metadata": { "annotations": { labels::annotation::TAKEN_OUT: "true" } } });
        let (ended, next) = carry_out(Ok(Answer::Object(kept)));
        assert!(ended.is_none() && matches!(next, Some(Request::Delete { .. })), "{next:?}");
        let (ended, _) = carry_out(Ok(Answer::Object(json!({ "metadata": {} }))));
        assert!(matches!(ended.unwrap().result, Err(Error::Refused(why)) if why.contains("a webhook")));
        let (ended, _) = carry_out(Err(refused("Forbidden")));
        assert!(matches!(ended.unwrap().result, Err(Error::Api { .. })));
        let (ended, _) = carry_out(Err(refused("NotFound")));
        let ended = ended.unwrap();
        assert!(matches!((ended.change, ended.result), (Some(Change::Gone { .. }), Ok(()))));
    }

    /// What becomes of a Pod that is to be made, when that is there already.
    fn occupied(found: &Value) -> (Vec<Request>, Ended) {
        let mut world = world();
        let pod = world.member(0).pod.take().unwrap();
        let create = Action::CreatePod(Box::new(pod));
        carry_out(&world, &create, |request| match request {
            Request::Create { .. } => Err(refused("AlreadyExists")),
            _ => Ok(Answer::Object(found.clone())),
        })
    }

    #[test]
    fn t21_what_is_there_already_is_explained_and_gets_its_labels_back_if_it_is_ours() {
        let world = world();
        let mut ours = world.view.members[0].pod.clone().unwrap();
        let (asked, ended) = occupied(&serde_json::to_value(&ours).unwrap());
        assert!(matches!(asked[..], [Request::Create { .. }, Request::Get { .. }]));
        assert!(matches!(ended.result, Err(Error::Stale(_))), "the cache lags");

        ours.labels_mut().remove(labels::CLUSTER);
        let (asked, ended) = occupied(&serde_json::to_value(&ours).unwrap());
        let Some(Request::Patch { patch, .. }) = asked.last() else { panic!("{asked:?}") };
        assert_eq!(patch["metadata"]["labels"][labels::CLUSTER], "c");
        assert!(matches!(ended.change, Some(Change::Wrote { kind: Kind::Pod, .. })));
        assert!(matches!(ended.result, Err(Error::Relabelled(_))));

        let theirs = json!({ "metadata": { "uid": "y", "name": "c-a", "ownerReferences": [
            { "controller": true, "kind": "ReplicaSet", "name": "r", "uid": "z" },
        ] } });
        let (_, ended) = occupied(&theirs);
        assert!(matches!(ended.result, Err(Error::Refused(why)) if why.contains("ReplicaSet r of UID z")));
    }
}

mod whole {
    use super::*;

    /// Answers for a world in which everything is as its view says.
    fn reply(world: &World, request: &Request) -> Reply {
        let Request::Etcd { at, call } = request else { return Some(Err(refused("Conflict"))) };
        let member = world.view.members.iter().find(|m| m.name() == at.member())?;
        match call {
            EtcdCall::Status => Some(member.etcd.clone()?.map(Answer::Status).map_err(Failure::Etcd)),
            EtcdCall::Members { .. } => {
                Some(Ok(Answer::Members(world.view.etcd.membership.as_ref()?.fact.clone())))
            }
            _ => Some(Ok(Answer::Done)),
        }
    }

    fn begin(world: &World, around: &Around<'_>) -> Pass {
        let mut view = world.view.clone();
        view.members.iter_mut().for_each(|m| m.etcd = None);
        view.etcd = crate::EtcdView::default();
        Pass::begin(view, Memory::default(), Sound, around)
    }

    #[test]
    fn at_rest_nothing_is_written() {
        let world = World::settled(EtcdCluster::test("ns", "c"));
        let mut pass = begin(&world, &around());
        let asked = play(&mut pass, |request| reply(&world, request));
        assert!(asked.iter().all(|request| !request.is_write()), "{asked:?}");
        assert_eq!(asked.len(), 4, "three statuses and one list");
        let end = pass.end();
        assert!(end.succeeded && end.again > Duration::from_secs(20), "{:?}", end.again);
    }

    #[test]
    fn t36_who_does_not_lead_writes_nothing() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.view.budget = None;
        let mut pass = begin(&world, &around());
        let deposed = Around { leads: false, ..around() };
        let mut waiting = vec![];
        loop {
            match pass.next(&deposed) {
                Step::Ask(ticket, request) => {
                    assert!(!request.is_write(), "{request:?}");
                    waiting.extend(reply(&world, &request).map(|answer| (ticket, answer)));
                }
                Step::Wait => {
                    let (ticket, answer) = waiting.remove(0);
                    pass.hear(ticket, answer, &deposed);
                }
                Step::Over => break,
            }
        }
        assert!(pass.plan().actions.iter().any(|a| matches!(a, Action::CreateBudget(_))));
        assert!(!pass.end().succeeded);
    }

    /// A cluster whose id is not on record, and a member with something new to say.
    fn unrecorded() -> World {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().cluster_id = None;
        world.member(0).member.status.as_mut().unwrap().version = None;
        world
    }

    #[test]
    fn t7_a_status_that_waits_for_a_members_record_is_not_said_to_stand() {
        let world = unrecorded();
        for refuses in [true, false] {
            let mut pass = begin(&world, &around());
            let asked = play(&mut pass, |request| match request {
                Request::ReplaceStatus { kind: Kind::Member, .. } if refuses => {
                    Some(Err(refused("Forbidden")))
                }
                Request::ReplaceStatus { object, .. } => Some(Ok(Answer::Object(object.clone()))),
                request => reply(&world, request),
            });
            let of_cluster = |r: &Request| matches!(r, Request::ReplaceStatus { kind: Kind::Cluster, .. });
            assert_eq!(asked.iter().any(of_cluster), !refuses);
            let told = pass.told();
            assert_eq!(told.iter().any(|told| matches!(told, Told::Reported)), !refuses, "{told:?}");
        }
    }

    /// A cache that has heard more than the view.
    struct Heard(Value);

    impl Latest for Heard {
        fn latest(&self, kind: Kind, _: &str) -> Option<Value> {
            (kind == Kind::Cluster).then(|| self.0.clone())
        }
    }

    #[test]
    fn h19_a_status_is_written_to_the_newest_version_but_over_nobody_elses() {
        let world = unrecorded();
        let mut newer = world.view.cluster.clone().unwrap();
        newer.metadata.resource_version = Some("77".into());
        let mut changed = newer.clone();
        changed.status.as_mut().unwrap().ready_members = 42;
        for (heard, writes) in [(newer, true), (changed, false)] {
            let cache = Heard(serde_json::to_value(&heard).unwrap());
            let around = Around { cache: &cache, ..around() };
            let mut pass = begin(&world, &around);
            let (mut versions, mut waiting) = (vec![], vec![]);
            loop {
                match pass.next(&around) {
                    Step::Ask(ticket, Request::ReplaceStatus { kind, object, .. }) => {
                        if kind == Kind::Cluster {
                            versions.push(object["metadata"]["resourceVersion"].clone());
                        }
                        waiting.push((ticket, Ok(Answer::Object(object))));
                    }
                    Step::Ask(ticket, request) => {
                        waiting.extend(reply(&world, &request).map(|answer| (ticket, answer)));
                    }
                    Step::Wait => {
                        let (ticket, answer) = waiting.remove(0);
                        pass.hear(ticket, answer, &around);
                    }
                    Step::Over => break,
                }
            }
            assert_eq!(versions, if writes { vec![json!("77")] } else { vec![] });
        }
    }

    #[test]
    fn t32_a_refusal_is_remembered_and_the_rest_goes_on() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.view.budget = None;
        world.view.client_service = None;
        let mut pass = begin(&world, &around());
        let asked = play(&mut pass, |request| match request {
            Request::Create { .. } => Some(Err(refused("Forbidden"))),
            Request::Get { .. } => {
                Some(Ok(Answer::Object(serde_json::to_value(&world.view.cluster).unwrap())))
            }
            Request::ReplaceStatus { object, .. } => Some(Ok(Answer::Object(object.clone()))),
            request => reply(&world, request),
        });
        let tried = asked.iter().filter(|r| matches!(r, Request::Create { .. })).count();
        assert_eq!(tried, 2, "{asked:?}");
        let refused = pass.end().memory.refused;
        assert!(refused.contains_key("PodDisruptionBudget c"), "{refused:?}");
        assert!(refused.contains_key("Service c-client"), "{refused:?}");
    }
}
