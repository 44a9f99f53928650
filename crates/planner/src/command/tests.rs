use super::start::starts_new;
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
fn started_with(pod: &Pod) -> Vec<String> {
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
        .filter_map(|a| if let Action::CreatePod(pod) = a { Some(started_with(pod)) } else { None })
        .collect();
    assert!(began[0].contains(&"--initial-cluster-state=new".to_owned()));
    assert!(began[1].iter().any(|f| f.starts_with("--initial-cluster=") && f.contains(',')));
    for member in &world.view.members {
        let now = started_with(member.pod.as_ref().unwrap());
        assert!(now.contains(&"--initial-cluster-state=existing".to_owned()), "{now:?}");
        assert!(now.contains(&format!("--initial-cluster={}", alone(member))), "{now:?}");
    }
}

#[test]
fn a_pod_made_by_somebody_else_is_left_as_it_is() {
    let theirs: Pod =
        serde_norway::from_str(include_str!("../../tests/fixtures/go-operator-pod.yaml")).unwrap();
    assert!(!may_begin_anew(&theirs, "whatever"));
    assert!(initial_cluster(&theirs).unwrap().starts_with("my-etcd-rzkb8=http://"));
}

#[test]
fn the_command_of_the_go_operator_comes_first() {
    let theirs: Pod =
        serde_norway::from_str(include_str!("../../tests/fixtures/go-operator-pod.yaml")).unwrap();
    let theirs = started_with(&theirs);
    let name = "my-etcd-rzkb8";
    let mut cluster = EtcdCluster::test("default", "my-etcd").replicas(1);
    cluster.metadata.uid = Some("d93553a3-3348-4a02-b5b8-d0339a0931c4".into());
    let ours = first_pod(cluster);
    let ours: Vec<_> = started_with(&ours).iter().map(|f| f.replace(&ours.name_any(), name)).collect();
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
        started_with(&first_pod(cluster))[11..],
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
    assert!(started_with(pod).contains(&alone));
}
