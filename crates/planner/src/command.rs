//! etcd's command line, and how etcd begins when it finds no data: the one moment where a wrong word forms a second
//! cluster or lets a member back in that has forgotten everything.

use std::collections::BTreeMap;

use api::labels::annotation;
use api::{EtcdMember, labels, names};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;

use crate::pod::etcd_container;
use crate::view::{MemberView, Scene};

pub(crate) const METRICS_PORT: i32 = 2381;
pub(crate) const DATA_ROOT: &str = "/var/lib/etcd";
/// Not etcd's own variables (`ETCD_…`): etcd warns of those that a flag overrides.
const INITIAL_CLUSTER: &str = "INITIAL_CLUSTER";
const INITIAL_CLUSTER_STATE: &str = "INITIAL_CLUSTER_STATE";
/// etcd applies "add learner" on every member against that member's own `--max-learners`, so all members must agree on
/// one value for all time. It is a constant for that reason, larger than any sensible number of joiners at once.
const MAX_LEARNERS: usize = 8;

/// The whole command line. The order is the one the Go operator uses; what it does not have comes last.
/// `joined`: it may have data, whether that is on record or not.
pub(crate) fn line(member: &MemberView, formed: bool, joined: bool) -> Vec<String> {
    let spec = &member.member.spec;
    let (name, service, namespace) = (member.name(), member.service_name(), member.namespace());
    let start = if joined { Start::of(member, formed, joined) } else { Start::from_environment() };
    let mut command = vec![
        "etcd".to_owned(),
        format!("--name={name}"),
        format!("--data-dir={}", data_dir(&member.member)),
        format!("--listen-peer-urls={}://0.0.0.0:{}", names::scheme(spec.peer_tls()), names::PEER_PORT),
        format!("--listen-client-urls=http://0.0.0.0:{}", names::CLIENT_PORT),
        format!("--advertise-client-urls={}", names::client_url(false, name, &service, namespace)),
        format!("--initial-advertise-peer-urls={}", member.peer_url()),
        format!("--initial-cluster={}", start.initial_cluster),
        format!("--initial-cluster-token={}", spec.cluster_token),
        format!("--initial-cluster-state={}", start.state),
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
    if spec.tls.as_ref().is_some_and(|tls| tls.peer_auto_tls) {
        command.push("--peer-auto-tls".to_owned());
    }
    command.extend(max_learners_flag(&spec.version));
    command
}

/// How etcd begins if it finds no data. Once there is data, it reads none of this.
struct Start {
    initial_cluster: String,
    state: String,
}

impl Start {
    fn of(member: &MemberView, formed: bool, joined: bool) -> Self {
        let initial_cluster = if joined { alone(member) } else { member.member.spec.initial_cluster.clone() };
        let state = if starts_new(member, formed) { "new" } else { "existing" };
        Self { initial_cluster, state: state.to_owned() }
    }

    /// A command line is fixed for the life of its Pod, and what is right before a member has joined is dangerous
    /// afterwards. So a first Pod reads both from its annotations, which the kubelet looks up at every start.
    fn from_environment() -> Self {
        Self {
            initial_cluster: format!("$({INITIAL_CLUSTER})"),
            state: format!("$({INITIAL_CLUSTER_STATE})"),
        }
    }
}

/// The list of a member that has joined: with its data gone it must not come back, because under its old id it would
/// have forgotten what it voted for (T7). Alone on its list it finds nobody to join.
pub(crate) fn alone(member: &MemberView) -> String {
    format!("{}={}", member.name(), member.peer_url())
}

/// `new` only for a seed that has never been part of anything (H31): a seed that lost its data must not form a second
/// cluster with the same ids.
fn starts_new(member: &MemberView, formed: bool) -> bool {
    member.member.spec.bootstrap && !member.has_joined() && !formed
}

/// What a first Pod starts with; later ones have it in their command line.
pub(crate) fn start_annotations(member: &MemberView, formed: bool, joined: bool) -> BTreeMap<String, String> {
    if joined {
        return BTreeMap::new();
    }
    let start = Start::of(member, formed, joined);
    let annotations = [
        (annotation::INITIAL_CLUSTER, start.initial_cluster),
        (annotation::INITIAL_CLUSTER_STATE, start.state),
    ];
    annotations.map(|(key, value)| (key.to_owned(), value)).into()
}

pub(crate) fn start_environment(joined: bool) -> Option<Vec<EnvVar>> {
    let from = |name: &str, annotation: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("metadata.annotations['{annotation}']"),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    (!joined).then(|| {
        vec![
            from(INITIAL_CLUSTER, annotation::INITIAL_CLUSTER),
            from(INITIAL_CLUSTER_STATE, annotation::INITIAL_CLUSTER_STATE),
        ]
    })
}

/// The list a Pod would join with, wherever it has it from.
pub(crate) fn initial_cluster(pod: &Pod) -> Option<&str> {
    if let Some(list) = pod.annotations().get(annotation::INITIAL_CLUSTER) {
        return Some(list);
    }
    let command = etcd_container(pod)?.command.as_ref()?;
    command.iter().find_map(|flag| flag.strip_prefix("--initial-cluster="))
}

/// Whether a Pod starts etcd as a member that exists. Of a seed, that it has formed its cluster.
pub(crate) fn is_settled(pod: &Pod) -> bool {
    if let Some(state) = pod.annotations().get(annotation::INITIAL_CLUSTER_STATE) {
        return state == "existing";
    }
    let command = etcd_container(pod).and_then(|c| c.command.as_ref());
    command.is_some_and(|flags| flags.iter().any(|flag| flag == "--initial-cluster-state=existing"))
}

/// Whether another operator made this Pod: ours tell etcd through annotations how to start.
pub(crate) fn is_anothers(pod: &Pod) -> bool {
    !pod.annotations().contains_key(annotation::INITIAL_CLUSTER_STATE)
        && !pod.annotations().contains_key(annotation::MEMBER_UID)
}

/// Whether etcd forms a cluster at every start of this Pod that finds no data, and nobody can tell it otherwise: so the Go
/// operator makes its seeds.
pub(crate) fn is_fixed_to_form(pod: &Pod) -> bool {
    let fixed = !pod.annotations().contains_key(annotation::INITIAL_CLUSTER_STATE);
    let flags = etcd_container(pod).and_then(|c| c.command.as_ref());
    fixed && flags.is_some_and(|flags| flags.iter().any(|flag| flag == "--initial-cluster-state=new"))
}

/// Instead of `new`: etcd does not know the word, and ends before it has made anything.
pub const WITHDRAWN: &str = "withdrawn";

/// Whether etcd in this Pod can still be told how to start: it reads that off annotations, at every start.
pub(crate) fn can_be_told(pod: &Pod) -> bool {
    let flags = etcd_container(pod).and_then(|c| c.command.as_ref());
    flags.is_some_and(|flags| flags.iter().any(|flag| flag.contains(&format!("$({INITIAL_CLUSTER})"))))
}

/// Whether etcd in this Pod has been told not to start at all.
pub(crate) fn is_withdrawn(pod: &Pod) -> bool {
    can_be_told(pod)
        && pod.annotations().get(annotation::INITIAL_CLUSTER_STATE).is_some_and(|state| state == WITHDRAWN)
}

/// Whether a restart of etcd in this Pod could begin anew. A Pod that was made with fixed flags can not be helped.
pub(crate) fn may_begin_anew(pod: &Pod, alone: &str) -> bool {
    let value = |key: &str| pod.annotations().get(key);
    // Without them such a Pod could not start at all.
    let missing = |key: &str| can_be_told(pod) && value(key).is_none();
    value(annotation::INITIAL_CLUSTER).is_some_and(|list| list != alone)
        || value(annotation::INITIAL_CLUSTER_STATE).is_some_and(|state| state != "existing")
        || missing(annotation::INITIAL_CLUSTER)
        || missing(annotation::INITIAL_CLUSTER_STATE)
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
    let below = member.annotations().get(annotation::DATA_DIR_SUBPATH);
    match below.and_then(|value| labels::data_dir_subpath(value)) {
        Some(directory) => format!("{DATA_ROOT}/{directory}"),
        None => DATA_ROOT.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Action;
    use crate::fixtures::World;
    use api::{EtcdCluster, EtcdOptions};

    /// The Pod with which a cluster of one begins.
    fn first_pod(cluster: EtcdCluster) -> Pod {
        let mut world = World::new(cluster.replicas(1));
        let created = |a: Action| if let Action::CreatePod(pod) = a { Some(*pod) } else { None };
        (0..9).find_map(|_| world.pass().into_iter().find_map(created)).unwrap()
    }

    /// The command line as the kubelet starts it.
    fn flags(pod: &Pod) -> Vec<String> {
        let etcd = etcd_container(pod).unwrap();
        let mut command = etcd.command.clone().unwrap();
        for variable in etcd.env.iter().flatten() {
            let field = variable.value_from.as_ref().unwrap().field_ref.as_ref().unwrap().field_path.clone();
            let key = field.strip_prefix("metadata.annotations['").unwrap().strip_suffix("']").unwrap();
            let (name, value) = (format!("$({})", variable.name), &pod.annotations()[key]);
            command.iter_mut().for_each(|flag| *flag = flag.replace(&name, value));
        }
        command
    }

    #[test]
    fn t7_h31_a_first_pod_can_not_begin_anew_once_its_member_has_joined() {
        let mut world = World::new(EtcdCluster::test("ns", "c").replicas(2));
        let done = world.settle();
        let began: Vec<_> = done
            .iter()
            .filter_map(|a| if let Action::CreatePod(pod) = a { Some(flags(pod)) } else { None })
            .collect();
        assert!(began[0].contains(&"--initial-cluster-state=new".to_owned()));
        assert!(began[1].iter().any(|f| f.starts_with("--initial-cluster=") && f.contains(',')));
        for member in &world.view.members {
            let now = flags(member.pod.as_ref().unwrap());
            assert!(now.contains(&"--initial-cluster-state=existing".to_owned()), "{now:?}");
            assert!(now.contains(&format!("--initial-cluster={}", alone(member))), "{now:?}");
        }
    }

    #[test]
    fn a_pod_made_by_somebody_else_is_left_as_it_is() {
        let theirs: Pod =
            serde_norway::from_str(include_str!("../tests/fixtures/go-operator-pod.yaml")).unwrap();
        assert!(!may_begin_anew(&theirs, "whatever"));
        assert!(initial_cluster(&theirs).unwrap().starts_with("my-etcd-rzkb8=http://"));
    }

    #[test]
    fn the_command_of_the_go_operator_comes_first() {
        let theirs: Pod =
            serde_norway::from_str(include_str!("../tests/fixtures/go-operator-pod.yaml")).unwrap();
        let theirs = flags(&theirs);
        let name = "my-etcd-rzkb8";
        let mut cluster = EtcdCluster::test("default", "my-etcd").replicas(1);
        cluster.metadata.uid = Some("d93553a3-3348-4a02-b5b8-d0339a0931c4".into());
        let ours = first_pod(cluster);
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
            flags(&first_pod(cluster))[11..],
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
    fn h40_a_data_directory_stays_on_the_volume() {
        let member = EtcdCluster::test("ns", "c").latched().member("a");
        let dir = |value| data_dir(&member.clone().annotation(annotation::DATA_DIR_SUBPATH, value));
        assert_eq!(dir("default.etcd"), "/var/lib/etcd/default.etcd");
        assert_eq!(dir("../../etc"), "/var/lib/etcd");
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
}
