//! The Pod of each member: when it may exist, and what it looks like. A Pod is never changed in place, except for the
//! role label by which Services and budgets tell voters from learners.

use api::{EtcdMember, labels, metadata, names};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EmptyDirVolumeSource, HTTPGetAction,
    PersistentVolumeClaimVolumeSource, Pod, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec,
    Probe, ResourceRequirements, SeccompProfile, SecurityContext, TCPSocketAction, Volume, VolumeMount,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use crate::healing::has_ended;
use crate::view::{Assessed, MemberView, Scene, controlled_by};
use crate::{Action, Plan, Settings, volume};

const METRICS_PORT: i32 = 2381;
const DATA_ROOT: &str = "/var/lib/etcd";
/// The user of the etcd image; any other would not own its volume.
const NONROOT: i64 = 65532;
/// etcd applies "add learner" on every member against that member's own `--max-learners`, so all members must agree on
/// one value for all time. It is a constant for that reason, larger than any sensible number of joiners at once.
const MAX_LEARNERS: usize = 8;

pub(crate) fn keep(scene: &Scene<'_>, plan: &mut Plan) {
    for member in scene.members.iter().filter(|m| has_a_place(scene, m)) {
        match &member.pod {
            None if may_start(member) => {
                let pod = desired(member, &scene.view.settings, scene.is_formed());
                plan.act(Action::CreatePod(Box::new(pod)));
            }
            None => {}
            Some(found) if !member.owns(&found.metadata) => {
                plan.wait_for(format!("Pod {} is owned by a different EtcdMember", member.name()));
            }
            // T4: it never runs again. What a memory-backed member had is gone with it, and healing deals with that.
            Some(found)
                if has_ended(found) && !member.is_memory() && found.metadata.deletion_timestamp.is_none() =>
            {
                let uid = found.metadata.uid.clone().unwrap_or_default();
                plan.act(Action::DeletePod { name: member.name().to_owned(), uid });
            }
            Some(found) => relabel(member, found, plan),
        }
    }
}

/// Members that run, and those that have to leave but are still needed in etcd.
fn has_a_place(scene: &Scene<'_>, member: &Assessed<'_>) -> bool {
    let listed = || scene.membership().is_none_or(|list| list.by_peer_url(&member.peer_url()).is_some());
    !member.is_pending()
        && !member.member.spec.dormant
        && (!member.is_deleting() || (scene.is_formed() && listed()))
}

/// A memory-backed member lives and dies with its Pod (H27); a member on a volume needs that volume.
fn may_start(member: &Assessed<'_>) -> bool {
    let had_pod = member.member.status.as_ref().is_some_and(|s| s.pod_uid.is_some());
    if member.is_memory() { !had_pod } else { volume::is_usable(member) }
}

fn relabel(member: &Assessed<'_>, pod: &Pod, plan: &mut Plan) {
    let labelled = pod.labels().get(labels::ROLE).is_some_and(|role| role == labels::VOTER);
    let voter = member.status.is_voter;
    if labelled != voter && pod.metadata.deletion_timestamp.is_none() {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        plan.act(Action::LabelPod { name: member.name().to_owned(), uid, voter });
    }
}

/// How many learners every member of the cluster accepts at once. Pods made by somebody else accept one.
pub(crate) fn max_learners(scene: &Scene<'_>) -> usize {
    let accepted = |pod: &Pod| {
        let command = etcd_container(pod).and_then(|c| c.command.as_ref())?;
        command.iter().find_map(|flag| flag.split_once("max-learners=")?.1.parse().ok())
    };
    let pods = scene.members.iter().filter_map(|m| m.pod.as_ref());
    pods.map(|pod| accepted(pod).unwrap_or(1)).min().unwrap_or(1)
}

/// The container that runs etcd.
pub fn etcd_container(pod: &Pod) -> Option<&Container> {
    pod.spec.as_ref()?.containers.iter().find(|c| c.name == "etcd")
}

fn desired(member: &Assessed<'_>, settings: &Settings, formed: bool) -> Pod {
    let spec = &member.member.spec;
    let extra = spec.additional_metadata.clone().unwrap_or_default();
    let mut own = labels::for_member(&spec.cluster_name, member.name());
    if member.status.is_voter {
        own.insert(labels::ROLE.to_owned(), labels::VOTER.to_owned());
    }
    Pod {
        metadata: ObjectMeta {
            name: Some(member.name().to_owned()),
            namespace: member.member.metadata.namespace.clone(),
            labels: metadata::merge(Some(own), &extra.labels),
            annotations: metadata::merge(None, &extra.annotations),
            owner_references: controlled_by(&member.member),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            hostname: Some(member.name().to_owned()),
            subdomain: Some(member.service_name()),
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
            containers: vec![container(member, settings, formed)],
            volumes: Some(vec![data_volume(member)]),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn container(member: &MemberView, settings: &Settings, formed: bool) -> Container {
    let spec = &member.member.spec;
    let port = |name: &str, port| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        ..ContainerPort::default()
    };
    Container {
        name: "etcd".to_owned(),
        image: Some(format!("{}:v{}", settings.etcd_image_repository, spec.version)),
        command: Some(command(member, formed)),
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

/// The whole command line. The order is the one the Go operator uses; what it does not have comes last.
fn command(member: &MemberView, formed: bool) -> Vec<String> {
    let spec = &member.member.spec;
    let (name, service, namespace) = (member.name(), member.service_name(), member.namespace());
    let mut command = vec![
        "etcd".to_owned(),
        format!("--name={name}"),
        format!("--data-dir={}", data_dir(&member.member)),
        format!("--listen-peer-urls=http://0.0.0.0:{}", names::PEER_PORT),
        format!("--listen-client-urls=http://0.0.0.0:{}", names::CLIENT_PORT),
        format!("--advertise-client-urls={}", names::client_url(false, name, &service, namespace)),
        format!("--initial-advertise-peer-urls={}", member.peer_url()),
        format!("--initial-cluster={}", initial_cluster(member)),
        format!("--initial-cluster-token={}", spec.cluster_token),
        format!("--initial-cluster-state={}", if starts_new(member, formed) { "new" } else { "existing" }),
        format!("--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}"),
    ];
    if let Some(options) = &spec.options {
        command.extend(options.quota_backend_bytes.map(|n| format!("--quota-backend-bytes={n}")));
        command
            .extend(options.auto_compaction_mode.map(|m| format!("--auto-compaction-mode={}", m.as_str())));
        let retention = options.auto_compaction_retention.as_ref();
        command.extend(retention.map(|r| format!("--auto-compaction-retention={r}")));
        command.extend(options.snapshot_count.map(|n| format!("--snapshot-count={n}")));
    }
    command.extend(max_learners_flag(&spec.version));
    command
}

/// Once a member has joined, etcd reads this only if the data directory is empty, and then the member must not come
/// back: under its old id it would have forgotten what it voted for (T7). Alone on its list it finds nobody to join.
fn initial_cluster(member: &MemberView) -> String {
    if member.has_joined() {
        format!("{}={}", member.name(), member.peer_url())
    } else {
        member.member.spec.initial_cluster.clone()
    }
}

/// `new` only for a seed that has never been part of anything (H31): a seed that lost its data must not form a second
/// cluster with the same ids.
fn starts_new(member: &MemberView, formed: bool) -> bool {
    member.member.spec.bootstrap && !member.has_joined() && !formed
}

fn max_learners_flag(version: &str) -> Option<String> {
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next()?, parts.next()?) {
        // Before 3.6 there is no such flag, and one learner is all etcd takes.
        (3, ..6) => None,
        _ => Some(format!("--max-learners={MAX_LEARNERS}")),
    }
}

/// Adopted members keep their data below the root of the volume; a value that could leave it is ignored (H40).
fn data_dir(member: &EtcdMember) -> String {
    let below = member.annotations().get(labels::annotation::DATA_DIR_SUBPATH);
    match below.and_then(|value| labels::data_dir_subpath(value)) {
        Some(directory) => format!("{DATA_ROOT}/{directory}"),
        None => DATA_ROOT.to_owned(),
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
    use api::{AdditionalMetadata, EtcdCluster, EtcdOptions};

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
    fn the_command_of_the_go_operator_comes_first() {
        let theirs: Pod =
            serde_norway::from_str(include_str!("../tests/fixtures/go-operator-pod.yaml")).unwrap();
        let theirs = flags(&theirs);
        let name = "my-etcd-rzkb8";
        let mut cluster = EtcdCluster::test("default", "my-etcd").replicas(1);
        cluster.metadata.uid = Some("d93553a3-3348-4a02-b5b8-d0339a0931c4".into());
        let ours = pod_of(cluster);
        let ours: Vec<_> = flags(&ours).iter().map(|f| f.replace(&ours.name_any(), name)).collect();
        assert_eq!(ours[..theirs.len()], theirs[..]);
        assert_eq!(ours[theirs.len()..], ["--max-learners=8"]);
    }

    #[test]
    fn options_become_flags() {
        let mut cluster = EtcdCluster::test("ns", "c").version("3.5.35");
        cluster.spec.options = Some(EtcdOptions {
            quota_backend_bytes: Some(10_200_547_328),
            auto_compaction_mode: Some(api::AutoCompactionMode::Periodic),
            auto_compaction_retention: Some("5m".into()),
            snapshot_count: Some(10_000),
        });
        assert_eq!(
            flags(&pod_of(cluster))[11..],
            [
                "--quota-backend-bytes=10200547328",
                "--auto-compaction-mode=periodic",
                "--auto-compaction-retention=5m",
                "--snapshot-count=10000",
            ]
        );
    }

    #[test]
    fn the_learner_flag_follows_the_version() {
        assert_eq!(max_learners_flag("3.5.35"), None);
        assert_eq!(max_learners_flag("3.6.16").as_deref(), Some("--max-learners=8"));
        assert_eq!(max_learners_flag("4.0.0").as_deref(), Some("--max-learners=8"));
    }

    #[test]
    fn h31_new_only_for_a_seed_that_was_never_part_of_anything() {
        let cluster = EtcdCluster::test("ns", "c").latched();
        let state =
            |member: EtcdMember, formed| starts_new(&MemberView { member, ..MemberView::default() }, formed);
        let (seed, joiner) = (cluster.member("a").seed(), cluster.member("b"));
        assert!(state(seed.clone(), false));
        assert!(!state(seed.clone(), true));
        assert!(!state(seed.id(1), false));
        assert!(!state(joiner, false));
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
        cluster.spec.additional_metadata = Some(AdditionalMetadata {
            labels: extra.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..AdditionalMetadata::default()
        });
        let pod = pod_of(cluster);
        assert_eq!(pod.labels()["team"], "a");
        assert_eq!(pod.labels()["app.kubernetes.io/name"], "etcd");
        assert_eq!(pod.labels()[labels::ROLE], labels::VOTER);
        assert_eq!(pod.metadata.annotations, None);
    }

    #[test]
    fn h40_a_data_directory_stays_on_the_volume() {
        let member = EtcdCluster::test("ns", "c").latched().member("a");
        let dir = |value| data_dir(&member.clone().annotation(labels::annotation::DATA_DIR_SUBPATH, value));
        assert_eq!(dir("default.etcd"), "/var/lib/etcd/default.etcd");
        assert_eq!(dir("../../etc"), "/var/lib/etcd");
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
    fn t7_a_member_that_has_joined_can_not_join_again_with_an_empty_directory() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        let newest = world.member(2);
        let alone = format!("--initial-cluster={}={}", newest.name(), newest.peer_url());
        newest.pod = None;
        newest.etcd = None;
        let actions = world.plan().actions;
        let [Action::CreatePod(pod)] = &actions[..] else { panic!("{actions:?}") };
        assert!(flags(pod).contains(&alone));
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
}
