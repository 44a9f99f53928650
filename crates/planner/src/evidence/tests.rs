use std::collections::BTreeMap;

use api::{EtcdCluster, EtcdClusterStatus, EtcdMember, EtcdMemberStatus, conditions, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;
use crate::{Action, Ending, Leaving, Loss, MemberView, Permit, Release};

const DOCUMENT: &str = include_str!("../../../../docs/evidence.md");
const MEMBER: &str = "my-etcd-4xk7q";

/// The row of the document that an action has; `None` for those that can cost nothing. Without a catch-all, so that
/// whoever adds an action has to say.
fn row(view: &ClusterView, action: &Action) -> Option<&'static str> {
    Some(match action {
        Action::CreateMember(member) if member.spec.bootstrap => {
            "form a cluster: create its first EtcdMember"
        }
        Action::DeleteMember { because, .. } => match because {
            Leaving::Surplus { .. } => "scale down: delete an EtcdMember",
            Leaving::Outdated if view.members[0].member.spec.bootstrap => {
                "take out a seed that has formed nothing"
            }
            Leaving::Outdated => "make a joiner anew that never joined",
            Leaving::Broken(loss) => match loss {
                Loss::Pod if view.members[0].pod.is_none() => "replace a member in memory: its Pod is gone",
                Loss::Pod => "replace a member in memory: its Pod has ended",
                Loss::Volume => "replace a member: its claim is gone",
                Loss::OtherVolume => "replace a member: its claim is another one",
                Loss::CrashLoop { .. } => "replace a member: its etcd crashes again and again",
                Loss::StuckPod => "replace a member: its Pod is stuck in Terminating",
                Loss::NoNode => "replace a member: its volume has no node",
            },
        },
        Action::RemoveFromEtcd { .. } => "take a member out of etcd whose EtcdMember was deleted",
        Action::Promote { .. } => "give a learner its vote",
        Action::RemoveOrphan { .. } => "take a member out of etcd that has no EtcdMember",
        Action::ReleaseMember { because, .. } => match because {
            Release::OutOfEtcd => "drop the finalizer: the member is out of etcd",
            Release::NeverFormed => "drop the finalizer: no cluster has formed",
            Release::Outsider => "drop the finalizer: the member is of another cluster",
            Release::Empty => "drop the finalizer: nothing is left of the member",
            Release::ClusterDeleted { empty: true, .. } => {
                "drop the finalizer: the EtcdCluster is deleted, and nothing is left of the member"
            }
            Release::ClusterDeleted { .. } => "drop the finalizer: the EtcdCluster is deleted",
        },
        Action::SetDormant { dormant: true, .. } => "pause: put the last member to sleep",
        Action::DeletePod { because, .. } => match because {
            Ending::Ended => "delete a Pod that has ended",
            Ending::Paused { .. } => "delete the Pod of a paused member",
            Ending::Overtaken { .. } => "delete the Pod of a joiner that was told an old list",
        },
        Action::WithdrawPod { .. } => "tell the Pod of a seed that goes not to start",
        Action::CreateVolume(_) => "make a blank claim for a member",
        Action::DeleteBudget { .. } => "delete the PodDisruptionBudget",
        Action::AdoptMember { .. } | Action::AdoptService { .. } | Action::AdoptBudget { .. } => {
            "make the EtcdCluster the owner of a member, Service or budget"
        }
        Action::ConfirmMember { .. } => "confirm that an EtcdCluster has taken a member up",
        Action::RetainMember { .. } => "take off a member that it was to be deleted",
        Action::AdoptPod { .. } | Action::AdoptVolume { .. } => {
            "make an EtcdMember the owner of its Pod or claim"
        }
        Action::CreateService(_)
        | Action::RepairService { .. }
        | Action::CreateBudget(_)
        | Action::ResizeBudget { .. }
        | Action::CreateMember(_)
        | Action::WireMember { .. }
        | Action::SetDormant { .. }
        | Action::GuardMember { .. }
        | Action::LabelMember { .. }
        | Action::SeekLost { .. }
        | Action::CreatePod(_)
        | Action::LabelPod { .. }
        | Action::SettlePod { .. }
        | Action::AddLearner { .. }
        | Action::MoveLeader { .. }
        | Action::PersistMembership => return None,
    })
}

fn permit() -> Permit {
    Permit::forged()
}

fn cluster() -> EtcdCluster {
    EtcdCluster::test("ns", "my-etcd").formed()
}

fn member() -> EtcdMember {
    cluster().member("4xk7q").id(1).voter().ready()
}

fn view(pod: Option<Pod>) -> ClusterView {
    let member = MemberView { member: member(), pod, ..MemberView::default() };
    let name = "my-etcd".to_owned();
    ClusterView { name, cluster: Some(cluster()), members: vec![member], ..ClusterView::default() }
}

fn placed() -> Pod {
    let spec = k8s_openapi::api::core::v1::PodSpec { node_name: Some("node-1".into()), ..Default::default() };
    Pod { spec: Some(spec), ..Pod::default() }
}

/// One of each that can cost something, with what it is carried out on.
fn examples() -> Vec<(ClusterView, Action)> {
    let (name, uid) = (|| MEMBER.to_owned(), || "uid-of-my-etcd-4xk7q".to_owned());
    let leave = |because| Action::DeleteMember { name: name(), uid: uid(), because, permit: permit() };
    let broken = |loss| leave(Leaving::Broken(loss));
    let release = |because| Action::ReleaseMember {
        name: name(),
        uid: uid(),
        finalizers: vec![],
        because,
        permit: permit(),
    };
    let end = |because| Action::DeletePod { name: name(), uid: uid(), because, permit: permit() };
    let owners = |kind: &str, name: &str| {
        vec![OwnerReference {
            kind: kind.to_owned(),
            name: name.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]
    };
    let (ours, its) = (|| owners("EtcdCluster", "my-etcd"), || owners("EtcdMember", MEMBER));
    let gone = |empty| Release::ClusterDeleted { cluster: "my-etcd".to_owned(), uid: None, empty };
    let claim = PersistentVolumeClaim {
        metadata: ObjectMeta { owner_references: Some(its()), ..ObjectMeta::default() },
        ..PersistentVolumeClaim::default()
    };
    let of_nobody = [Action::CreateMember(Box::new(member().seed())), broken(Loss::Pod)];
    let of_a_pod = [
        leave(Leaving::Surplus { wanted: 1 }),
        leave(Leaving::Outdated),
        broken(Loss::Pod),
        broken(Loss::Volume),
        broken(Loss::OtherVolume),
        broken(Loss::CrashLoop { restarts: 5 }),
        broken(Loss::StuckPod),
        broken(Loss::NoNode),
        Action::RemoveFromEtcd { member: name(), id: 1, permit: permit() },
        Action::RemoveOrphan { member: name(), id: 1, permit: permit() },
        release(Release::OutOfEtcd),
        release(Release::Outsider),
        release(Release::Empty),
        Action::CreateVolume(Box::new(claim)),
        release(gone(false)),
        release(gone(true)),
        Action::SetDormant { name: name(), uid: uid(), dormant: true, confirmed: true, permit: permit() },
        end(Ending::Ended),
        end(Ending::Paused { member: uid() }),
        end(Ending::Overtaken { member: uid() }),
        Action::WithdrawPod { name: name(), uid: uid(), permit: permit() },
        Action::DeleteBudget { name: "my-etcd".to_owned(), uid: String::new() },
        Action::AdoptMember { name: name(), uid: uid(), owners: ours() },
        Action::ConfirmMember { name: name(), uid: uid(), cluster: String::new() },
        Action::RetainMember { name: name(), uid: uid() },
        Action::Promote { member: name(), id: 1 },
        Action::AdoptService { name: "my-etcd".to_owned(), uid: String::new(), owners: ours() },
        Action::AdoptBudget { name: "my-etcd".to_owned(), uid: String::new(), owners: ours() },
        Action::AdoptPod { name: name(), uid: String::new(), owners: its() },
        Action::AdoptVolume { name: names::pvc(MEMBER), uid: String::new(), owners: its() },
    ];
    let mut seed = view(Some(Pod::default()));
    let its_seed = &mut seed.members[0];
    its_seed.member.spec.bootstrap = true;
    its_seed.member.metadata.uid = Some("uid".to_owned());
    let owners = crate::view::controlled_by(&its_seed.member);
    its_seed.pod.as_mut().unwrap().metadata.owner_references = owners;
    let on = |pod: Option<Pod>| move |action| (view(pod.clone()), action);
    of_nobody
        .into_iter()
        .map(on(None))
        .chain(of_a_pod.into_iter().map(on(Some(placed()))))
        .chain([(seed.clone(), release(Release::NeverFormed)), (seed, leave(Leaving::Outdated))])
        .collect()
}

/// A status that says that nothing is left.
fn all_lost() -> EtcdClusterStatus {
    let mut status = cluster().status.unwrap_or_default();
    let reason = conditions::reason::ALL_MEMBERS_LOST;
    let lost = conditions::NewCondition::new(conditions::AVAILABLE, false, reason, "", None);
    conditions::set_condition(&mut status.conditions, lost, api::fixtures::THEN);
    status
}

fn words(looks: &[Look]) -> String {
    let words: Vec<_> = looks.iter().map(Look::to_string).collect();
    if words.is_empty() { "none".to_owned() } else { words.join("<br>") }
}

/// What the code looks at, by the words of the document for the step.
fn taken() -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for (view, action) in examples() {
        let (row, looks) = (row(&view, &action).unwrap(), words(&action.looks(&view)));
        let before = rows.insert(row.to_owned(), looks.clone());
        assert!(before.is_none_or(|before| before == looks), "two kinds of looks for one row: {row}");
    }
    let newcomer = MemberView { member: cluster().member("4xk7q"), ..MemberView::default() };
    let status = EtcdMemberStatus { pvc_uid: Some(String::new()), ..member().status.unwrap_or_default() };
    let look = look_before_record(&newcomer, &status).unwrap();
    rows.insert("write down with which claim a member has joined".to_owned(), words(&[look]));
    let nobody = ClusterView { members: vec![], ..view(None) };
    let looks = looks_before_loss(&nobody, &all_lost());
    rows.insert("say `AllMembersLost`, without any EtcdMember".to_owned(), words(&looks));
    let looks = looks_before_loss(&view(None), &all_lost());
    rows.insert("say `AllMembersLost`, for each EtcdMember (here: claim gone)".to_owned(), words(&looks));
    rows
}

/// First and last cell of each row of the document's tables.
fn documented() -> BTreeMap<String, String> {
    let cells = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = cells.map(|row| row.split(" | ").collect::<Vec<_>>()).filter(|cells| cells[0] != "Step");
    rows.map(|cells| (cells[0].to_owned(), cells[cells.len() - 1].to_owned())).collect()
}

#[test]
fn a_claim_that_was_seen_unbound_is_looked_at_again() {
    let claim =
        |volume: Value| serde_json::json!({ "metadata": { "uid": "x" }, "spec": { "volumeName": volume } });
    let look = Look::named(Kind::Claim, "data-c-a", Must::BeUnbound { uid: "x".into() });
    assert_eq!(look.judge(&[]), Ok(()));
    assert_eq!(look.judge(&[claim(Value::Null)]), Ok(()));
    assert!(look.judge(&[claim("pv-with-data".into())]).is_err());
    let other = Look::named(Kind::Claim, "data-c-a", Must::BeUnbound { uid: "y".into() });
    assert!(other.judge(&[claim(Value::Null)]).is_err(), "another one may be bound any moment");

    let mut view = view(None);
    let seed = &mut view.members[0];
    seed.member.spec.bootstrap = true;
    seed.volume = Some(PersistentVolumeClaim::default());
    let leaves = Action::DeleteMember {
        name: MEMBER.to_owned(),
        uid: String::new(),
        because: Leaving::Outdated,
        permit: permit(),
    };
    let unbound = |look: &Look| matches!(look.must, Must::BeUnbound { .. });
    assert!(leaves.looks(&view).iter().any(unbound));
}

#[test]
fn t27_a_pod_that_does_not_end_on_a_node_that_is_ready_is_waited_for() {
    let stuck = Action::DeleteMember {
        name: MEMBER.to_owned(),
        uid: String::new(),
        because: Leaving::Broken(Loss::StuckPod),
        permit: permit(),
    };
    let look = stuck.looks(&view(Some(placed()))).pop().unwrap();
    assert_eq!((look.kind, &look.which), (Kind::Node, &Which::Named("node-1".into())));
    let node = |ready: &str| serde_json::json!({ "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
    assert_eq!(look.judge(&[]), Ok(()));
    assert_eq!(look.judge(&[node("Unknown")]), Ok(()));
    let why = look.judge(&[node("True")]).unwrap_err();
    assert!(matches!(why, Contradiction::Refused(why) if why.contains("Node node-1 is Ready")));
}

#[test]
fn a_loss_that_a_look_contradicts_is_a_lost_quorum_all_the_same() {
    let told = without_loss(&all_lost(), "PersistentVolumeClaim data-c-a is there");
    let available = conditions::find(&told.conditions, conditions::AVAILABLE).unwrap();
    assert_eq!((available.status.as_str(), available.reason.as_str()), ("False", "QuorumLost"));
    assert!(available.message.contains("data-c-a is there"), "{}", available.message);
    assert_eq!(looks_before_loss(&view(None), &told), []);
}

#[test]
fn t29_the_document_names_the_looks_that_are_taken() {
    let (taken, documented) = (taken(), documented());
    for (row, looks) in &taken {
        assert_eq!(documented.get(row), Some(looks), "docs/evidence.md, row \"{row}\"");
    }
    let unknown: Vec<_> = documented.keys().filter(|row| !taken.contains_key(*row)).collect();
    assert_eq!(unknown, [""; 0], "rows of docs/evidence.md that nothing stands for");
}

#[test]
fn h20_services_and_budgets_are_made_for_a_formed_cluster_only_if_it_lives() {
    for action in [Action::CreateService(Box::default()), Action::CreateBudget(Box::default())] {
        let formed = view(None);
        let uid = formed.cluster.as_ref().unwrap().metadata.uid.clone();
        assert!(uid.is_some());
        let lives = Look::named(Kind::Cluster, "my-etcd", Must::Live { uid });
        assert_eq!(action.looks(&formed), [lives]);
        let cluster = Some(EtcdCluster::test("ns", "my-etcd"));
        let unformed = ClusterView { cluster, members: vec![], ..view(None) };
        assert_eq!(action.looks(&unformed), [], "the first member is looked at anyway");
    }
}

#[test]
fn what_seems_lost_is_sought_by_the_looks_that_would_give_it_up() {
    let losses =
        [Loss::Pod, Loss::Volume, Loss::OtherVolume, Loss::CrashLoop { restarts: 5 }, Loss::StuckPod];
    for (loss, pod) in losses.into_iter().chain([Loss::NoNode]).flat_map(|l| [(l, None), (l, Some(placed()))])
    {
        let view = view(pod);
        let because = Leaving::Broken(loss);
        let gives_up =
            Action::DeleteMember { name: MEMBER.to_owned(), uid: String::new(), because, permit: permit() };
        let seeks = Action::SeekLost { name: MEMBER.to_owned(), loss };
        assert!(!seeks.looks(&view).is_empty(), "{loss:?}");
        assert_eq!(seeks.looks(&view), gives_up.looks(&view), "{loss:?}");
    }
}

/// A seed that has formed nothing, with these objects.
fn seed(pod: Option<&str>, volume: Option<Option<&str>>, memory: bool) -> ClusterView {
    let mut view = view(None);
    let seed = &mut view.members[0];
    seed.member.spec.bootstrap = true;
    if memory {
        seed.member.spec.storage.medium = api::StorageMedium::Memory;
    }
    let owners = crate::view::controlled_by(&seed.member);
    let metadata = |uid: &str| ObjectMeta {
        uid: Some(uid.to_owned()),
        owner_references: owners.clone(),
        ..ObjectMeta::default()
    };
    seed.pod = pod.map(|phase| {
        let status =
            k8s_openapi::api::core::v1::PodStatus { phase: Some(phase.into()), ..Default::default() };
        Pod { metadata: metadata("pod"), status: Some(status), ..Pod::default() }
    });
    seed.volume = volume.map(|bound| {
        let volume_name = bound.map(str::to_owned);
        let spec =
            k8s_openapi::api::core::v1::PersistentVolumeClaimSpec { volume_name, ..Default::default() };
        PersistentVolumeClaim { metadata: metadata("claim"), spec: Some(spec), ..Default::default() }
    });
    view
}

#[test]
fn t34_whatever_a_seed_that_goes_may_have_is_looked_at() {
    let gone = "is gone, or not this member's";
    let told = "is the one that was seen, goes with its member, has never served, and was told not to start";
    let unbound = "is gone, or the one that was seen, and not bound to a volume";
    for (pod, volume, memory, looks) in [
        (None, None, false, vec![(Kind::Pod, gone), (Kind::Claim, gone)]),
        (None, Some(None), false, vec![(Kind::Pod, gone), (Kind::Claim, unbound)]),
        (Some("Pending"), Some(None), false, vec![(Kind::Pod, told), (Kind::Claim, unbound)]),
        (Some("Running"), Some(Some("pv-1")), false, vec![(Kind::Pod, told)]),
        (Some("Running"), None, true, vec![(Kind::Pod, told), (Kind::Claim, gone)]),
        (Some("Failed"), None, true, vec![(Kind::Pod, "is gone, or has ended"), (Kind::Claim, gone)]),
    ] {
        let view = seed(pod, volume, memory);
        let (name, uid) = (|| MEMBER.to_owned(), String::new);
        let remade =
            Action::DeleteMember { name: name(), uid: uid(), because: Leaving::Outdated, permit: permit() };
        let because = Release::NeverFormed;
        let released =
            Action::ReleaseMember { name: name(), uid: uid(), finalizers: vec![], because, permit: permit() };
        for (action, first) in [(remade, "has no memberID"), (released, "has no clusterID")] {
            let taken: Vec<_> = action.looks(&view).iter().map(|l| (l.kind, l.must.to_string())).collect();
            assert!(taken[0].1.contains(first), "{taken:?}");
            let expected: Vec<_> = looks.iter().map(|(kind, must)| (*kind, (*must).to_owned())).collect();
            assert_eq!(taken[1..], expected, "{pod:?} {volume:?}");
        }
    }
}
