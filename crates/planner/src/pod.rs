//! The Pod of each member: when it may exist, and what it looks like. A Pod is never changed in place, except for the
//! role label by which Services and budgets tell voters from learners, and the annotations that etcd is started with.

use api::{EtcdMember, labels, metadata, names};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EmptyDirVolumeSource, HTTPGetAction, HostAlias,
    PersistentVolumeClaimVolumeSource, Pod, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec,
    Probe, ResourceRequirements, SeccompProfile, SecurityContext, TCPSocketAction, Volume, VolumeMount,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use crate::command::{self, DATA_ROOT, METRICS_PORT};
use crate::healing::has_ended;
use crate::view::{Assessed, MemberView, Scene, controlled_by};
use crate::{Action, Ending, Plan, Settings, outdated, volume};

/// The user of the etcd image; any other would not own its volume.
const NONROOT: i64 = 65532;

pub(crate) fn keep(scene: &Scene<'_>, plan: &mut Plan) {
    for member in scene.members.iter().filter(|m| has_a_place(scene, m)) {
        match &member.pod {
            // One that can not be let go, because somebody refuses that, is still needed.
            None if may_start(scene, member)
                && (!plan.lets_go(member.name()) || scene.view.is_refused(member.name())) =>
            {
                let joined = !scene.is_newcomer(member);
                let pod = desired(member, &scene.view.settings, scene.is_formed(), joined);
                plan.act(Action::CreatePod(Box::new(pod)));
            }
            None => {}
            Some(found) if member.disowned(&found.metadata).is_some() => {
                let uid = found.metadata.uid.clone().unwrap_or_default();
                let owners = member.disowned(&found.metadata).unwrap_or_default();
                plan.act(Action::AdoptPod { name: member.name().to_owned(), uid, owners });
            }
            Some(found) if !member.owns(&found.metadata) => {
                let name = member.name();
                plan.complain(format!(
                    "Pod {name} is not owned by EtcdMember {name}, so it is neither used nor deleted. If it is the member's, \
                     make the EtcdMember (UID {}) its owner; if not, delete it",
                    member.uid()
                ));
            }
            // T4: it never runs again. What a memory-backed member had is gone with it, and healing deals with that.
            Some(found)
                if has_ended(found) && !member.is_memory() && found.metadata.deletion_timestamp.is_none() =>
            {
                let uid = found.metadata.uid.clone().unwrap_or_default();
                plan.act(Action::DeletePod { name: member.name().to_owned(), uid, because: Ending::Ended });
            }
            Some(found) => {
                relabel(member, found, plan);
                settle(scene, member, found, plan);
            }
        }
    }
}

/// Members that run, and those that have to leave but are still needed in etcd, or have to be asked first.
pub(crate) fn has_a_place(scene: &Scene<'_>, member: &Assessed<'_>) -> bool {
    let listed = || scene.membership().is_none_or(|list| member.row_in(list).is_some());
    // Who sleeps is alone in etcd.
    let sleeps = scene.members.iter().any(|m| m.member.spec.dormant);
    !member.is_pending()
        && !member.member.spec.dormant
        && (!member.is_deleting()
            || if scene.is_formed() { listed() && !sleeps } else { outdated::may_hold_data(member) })
}

/// A memory-backed member lives and dies with its Pod (H27); a member on a volume needs that volume.
fn may_start(scene: &Scene<'_>, member: &Assessed<'_>) -> bool {
    let had_pod = member.member.status.as_ref().is_some_and(|s| s.pod_uid.is_some());
    if member.is_memory() { !had_pod && scene.is_newcomer(member) } else { volume::is_usable(scene, member) }
}

fn relabel(member: &Assessed<'_>, pod: &Pod, plan: &mut Plan) {
    let labelled = pod.labels().get(labels::ROLE).is_some_and(|role| role == labels::VOTER);
    let voter = member.status.is_voter;
    if labelled != voter && pod.metadata.deletion_timestamp.is_none() {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        plan.act(Action::LabelPod { name: member.name().to_owned(), uid, voter });
    }
}

/// A member that has joined must not begin anew, whatever becomes of its files while its first Pod stays (T7, H31). A seed
/// may, as long as nobody has recorded that it formed anything: there is nobody else to join.
fn settle(scene: &Scene<'_>, member: &Assessed<'_>, pod: &Pod, plan: &mut Plan) {
    let alone = command::alone(member);
    if scene.is_formed()
        && member.has_joined()
        && command::may_begin_anew(pod, &alone)
        && pod.metadata.deletion_timestamp.is_none()
    {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        plan.act(Action::SettlePod { name: member.name().to_owned(), uid, initial_cluster: alone });
    }
}

/// The container that runs etcd.
pub fn etcd_container(pod: &Pod) -> Option<&Container> {
    pod.spec.as_ref()?.containers.iter().find(|c| c.name == "etcd")
}

fn desired(member: &Assessed<'_>, settings: &Settings, formed: bool, joined: bool) -> Pod {
    let spec = &member.member.spec;
    let extra = spec.additional_metadata.clone().unwrap_or_default();
    let mut own = labels::for_member(&spec.cluster_name, member.name());
    if member.status.is_voter {
        own.insert(labels::ROLE.to_owned(), labels::VOTER.to_owned());
    }
    let mut notes = command::start_annotations(member, formed, joined);
    notes.insert(labels::annotation::MEMBER_UID.to_owned(), member.uid().to_owned());
    // Only in the pass that makes its claim, and only after that was made.
    if !member.is_memory() && member.volume.is_none() {
        notes.insert(labels::annotation::FIRST_START.to_owned(), "true".to_owned());
    }
    Pod {
        metadata: ObjectMeta {
            name: Some(member.name().to_owned()),
            namespace: member.member.metadata.namespace.clone(),
            labels: metadata::merge(Some(own), &extra.labels),
            annotations: metadata::merge(Some(notes), &extra.annotations),
            owner_references: controlled_by(&member.member),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            hostname: Some(member.name().to_owned()),
            subdomain: Some(member.service_name()),
            host_aliases: Some(vec![own_name(member)]),
            affinity: affinity(&member.member),
            topology_spread_constraints: non_empty(&spec.topology_spread_constraints),
            image_pull_secrets: non_empty(&spec.image_pull_secrets),
            automount_service_account_token: Some(false),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(NONROOT),
                run_as_group: Some(NONROOT),
                fs_group: Some(NONROOT),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            containers: vec![container(member, settings, formed, joined)],
            volumes: Some(vec![data_volume(member)]),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// etcd looks up its own name before it starts and waits a second if nobody knows it yet, which is the rule: the
/// cluster's DNS learns of a Pod only when it runs. So the Pod knows its own name by itself.
fn own_name(member: &MemberView) -> HostAlias {
    let name = names::dns_name(member.name(), &member.service_name(), member.namespace());
    HostAlias { ip: "127.0.0.1".to_owned(), hostnames: Some(vec![name]) }
}

fn container(member: &MemberView, settings: &Settings, formed: bool, joined: bool) -> Container {
    let spec = &member.member.spec;
    let port = |name: &str, port| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        ..ContainerPort::default()
    };
    Container {
        name: "etcd".to_owned(),
        image: Some(format!("{}:v{}", settings.etcd_image_repository, spec.version)),
        command: Some(command::line(member, formed, joined)),
        env: command::start_environment(joined),
        ports: Some(vec![
            port("client", names::CLIENT_PORT),
            port("peer", names::PEER_PORT),
            port("metrics", METRICS_PORT),
        ]),
        resources: Some(resources(spec.resources.as_ref())),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: "data".to_owned(),
            mount_path: DATA_ROOT.to_owned(),
            ..VolumeMount::default()
        }]),
        // What etcd said last stands in the Pod's status, and from there in conditions.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        startup_probe: Some(startup_probe()),
        liveness_probe: Some(liveness_probe()),
        readiness_probe: Some(readiness_probe()),
        ..Container::default()
    }
}

/// Looks each second, so that a member is ready the moment it is. It must never end in a restart, because etcd without
/// a quorum can not become healthy by being restarted: a day of failures comes first.
fn startup_probe() -> Probe {
    Probe {
        http_get: Some(health()),
        period_seconds: Some(1),
        failure_threshold: Some(86_400),
        ..Probe::default()
    }
}

/// Only whether the process lives; never whether it has a quorum (H17).
fn liveness_probe() -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction { port: IntOrString::Int(names::PEER_PORT), host: None }),
        initial_delay_seconds: Some(15),
        period_seconds: Some(10),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

fn readiness_probe() -> Probe {
    Probe {
        http_get: Some(health()),
        period_seconds: Some(5),
        timeout_seconds: Some(3),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

/// A full database must not take the endpoints away (T18): the user has to reach etcd to make room.
fn health() -> HTTPGetAction {
    HTTPGetAction {
        path: Some("/health?exclude=NOSPACE".to_owned()),
        port: IntOrString::Int(METRICS_PORT),
        ..HTTPGetAction::default()
    }
}

/// What the user asks for, as soon as they ask for anything (claims alone count, H37).
fn resources(wanted: Option<&ResourceRequirements>) -> ResourceRequirements {
    let given = wanted.filter(|r| {
        r.requests.as_ref().is_some_and(|m| !m.is_empty())
            || r.limits.as_ref().is_some_and(|m| !m.is_empty())
            || r.claims.as_ref().is_some_and(|c| !c.is_empty())
    });
    given.cloned().unwrap_or_else(|| ResourceRequirements {
        requests: Some(
            [("cpu", "100m"), ("memory", "128Mi")]
                .map(|(k, v)| (k.to_owned(), Quantity(v.to_owned())))
                .into(),
        ),
        ..ResourceRequirements::default()
    })
}

/// Without a wish of the user's, members prefer different nodes and zones.
fn affinity(member: &EtcdMember) -> Option<Affinity> {
    if member.spec.affinity.is_some() || !member.spec.topology_spread_constraints.is_empty() {
        return member.spec.affinity.clone();
    }
    let apart = |weight, key: &str| WeightedPodAffinityTerm {
        weight,
        pod_affinity_term: PodAffinityTerm {
            topology_key: key.to_owned(),
            label_selector: Some(LabelSelector {
                match_labels: Some(labels::select_cluster(&member.spec.cluster_name)),
                match_expressions: None,
            }),
            ..PodAffinityTerm::default()
        },
    };
    Some(Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                apart(100, "kubernetes.io/hostname"),
                apart(50, "topology.kubernetes.io/zone"),
            ]),
            required_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    })
}

fn data_volume(member: &MemberView) -> Volume {
    let mut volume = Volume { name: "data".to_owned(), ..Volume::default() };
    if member.is_memory() {
        volume.empty_dir = Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(member.member.spec.storage.size.clone()),
        });
    } else {
        let claim_name = names::pvc(member.name());
        volume.persistent_volume_claim =
            Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None });
    }
    volume
}

fn non_empty<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::World;
    use api::{AdditionalMetadata, EtcdCluster};

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
        let extra =
            [("team", "a"), ("etcd-operator.cozystack.io/role", "x"), ("app.kubernetes.io/name", "x")];
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
}
