use super::container::resources;
use super::*;
use crate::fixtures::World;
use api::{AdditionalMetadata, EtcdCluster};
use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

fn pod_of(cluster: EtcdCluster) -> Pod {
    World::settled(cluster.replicas(1)).member(0).pod.clone().unwrap()
}

fn flags(pod: &Pod) -> Vec<String> {
    etcd_container(pod).unwrap().command.clone().unwrap()
}

/// What a test can not know in advance.
fn anonymous(mut pod: Pod) -> Pod {
    let name = pod.name_any();
    let text = serde_json::to_string(&pod).unwrap().replace(&name, "c-name");
    pod = serde_json::from_str(&text).unwrap();
    pod.status = None;
    pod
}

#[test]
fn a_pod_on_a_volume() {
    insta::assert_yaml_snapshot!(anonymous(pod_of(EtcdCluster::test("ns", "c"))));
}

#[test]
fn a_pod_in_memory() {
    let pod = anonymous(pod_of(EtcdCluster::test("ns", "c").memory("128Mi")));
    insta::assert_yaml_snapshot!(pod.spec.unwrap().volumes);
}

#[test]
fn h27_a_memory_member_that_lost_its_pod_is_not_started_again() {
    let mut world = World::settled(EtcdCluster::test("ns", "c").memory("64Mi"));
    world.member(1).pod = None;
    world.member(1).etcd = None;
    assert!(!world.plan().actions.iter().any(|a| matches!(a, Action::CreatePod(_))));
}

#[test]
fn a_member_on_a_volume_that_lost_its_pod_is_started_again() {
    let mut world = World::settled(EtcdCluster::test("ns", "c"));
    world.member(1).pod = None;
    world.member(1).etcd = None;
    let actions = world.plan().actions;
    let [Action::CreatePod(pod)] = &actions[..] else { panic!("{actions:?}") };
    assert!(flags(pod).contains(&"--initial-cluster-state=existing".to_owned()));
    assert_eq!(pod.labels()[labels::ROLE], labels::VOTER);
}

#[test]
fn h17_a_member_without_a_quorum_is_not_restarted_for_it() {
    let pod = pod_of(EtcdCluster::test("ns", "c"));
    let etcd = etcd_container(&pod).unwrap();
    let liveness = etcd.liveness_probe.as_ref().unwrap();
    assert!(liveness.http_get.is_none());
    assert_eq!(liveness.tcp_socket.as_ref().unwrap().port, IntOrString::Int(2380));
    let day = etcd.startup_probe.as_ref().unwrap();
    assert!(day.failure_threshold.unwrap() * day.period_seconds.unwrap() >= 86_400);
}

#[test]
fn h37_claims_alone_are_a_wish() {
    let claims: ResourceRequirements = serde_json::from_str(r#"{"claims": [{"name": "x"}]}"#).unwrap();
    assert_eq!(resources(Some(&claims)), claims);
    assert!(resources(Some(&ResourceRequirements::default())).requests.is_some());
}

#[test]
fn h39_users_metadata_reaches_the_pod_without_reserved_keys() {
    let mut cluster = EtcdCluster::test("ns", "c");
    let extra = [("team", "a"), ("etcd-operator.cozystack.io/role", "x"), ("app.kubernetes.io/name", "x")];
    let notes = [("note", "b"), (labels::annotation::INITIAL_CLUSTER_STATE, "new")];
    cluster.spec.additional_metadata = Some(AdditionalMetadata {
        labels: extra.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        annotations: notes.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
    });
    let pod = pod_of(cluster);
    assert_eq!(pod.labels()["team"], "a");
    assert_eq!(pod.labels()["app.kubernetes.io/name"], "etcd");
    assert_eq!(pod.labels()[labels::ROLE], labels::VOTER);
    assert_eq!(pod.annotations()["note"], "b");
    assert_eq!(pod.annotations()[labels::annotation::INITIAL_CLUSTER_STATE], "existing");
}

#[test]
fn members_prefer_to_be_apart_unless_the_user_says_otherwise() {
    let pod = pod_of(EtcdCluster::test("ns", "c"));
    assert!(pod.spec.unwrap().affinity.unwrap().pod_anti_affinity.is_some());
    let mut cluster = EtcdCluster::test("ns", "c");
    cluster.spec.affinity = Some(Affinity::default());
    assert_eq!(pod_of(cluster).spec.unwrap().affinity, Some(Affinity::default()));
}

#[test]
fn t12_the_last_member_is_kept_running_while_it_waits_to_leave() {
    let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
    let at = api::conditions::wire_time(crate::fixtures::now());
    let member = world.member(0);
    member.member.metadata.deletion_timestamp = Some(at);
    member.pod = None;
    member.etcd = None;
    world.view.etcd.membership = None;
    assert!(matches!(&world.plan().actions[..], [Action::CreatePod(_)]));
}

#[test]
fn t25_a_pod_and_a_claim_that_lost_their_owner_get_it_back_if_they_are_on_record() {
    let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
    let member = world.member(0);
    member.pod.as_mut().unwrap().metadata.owner_references = None;
    member.volume.as_mut().unwrap().metadata.owner_references = None;
    let done = world.settle();
    assert!(matches!(&done[..], [Action::AdoptVolume { .. }, Action::AdoptPod { .. }]), "{done:?}");
    let pod = &mut world.member(0).pod.as_mut().unwrap().metadata;
    pod.owner_references = None;
    pod.uid = Some("another".into());
    pod.annotations.as_mut().unwrap().remove(labels::annotation::MEMBER_UID);
    assert_eq!(world.plan().actions, [], "a stranger's stays a stranger's");
    assert!(world.plan().complaint.unwrap().contains("not owned by EtcdMember"));
}

#[test]
fn t26_a_pod_says_for_whom_it_was_made_when_owner_and_record_are_lost() {
    let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
    let member = world.member(0);
    member.member.status = None;
    member.pod.as_mut().unwrap().metadata.owner_references = None;
    member.volume.as_mut().unwrap().metadata.owner_references = None;
    let done = world.settle();
    assert!(matches!(&done[..], [Action::AdoptVolume { .. }, Action::AdoptPod { .. }, ..]), "{done:?}");

    let member = world.member(0);
    member.member.status = None;
    member.pod = None;
    member.etcd = None;
    let claim = &mut member.volume.as_mut().unwrap().metadata;
    claim.owner_references = None;
    let copied = (labels::annotation::MEMBER_UID.to_owned(), member.member.metadata.uid.clone().unwrap());
    claim.annotations = Some([copied].into());
    world.view.etcd.membership = None;
    let actions = world.plan().actions;
    let used = |a: &Action| matches!(a, Action::AdoptVolume { .. } | Action::CreatePod(_));
    assert!(!actions.iter().any(used), "a claim may be a copy with older data: {actions:?}");
}
