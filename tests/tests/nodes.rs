//! Nodes that go away and come back, and volumes that are as large as they say. Needs the lab with three nodes.
//!
//! A node is everybody's, so these tests run one after the other, and not beside those of other files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{labels, names};
use e2e::command::run;
use e2e::lab::{Fault, Outage, nodes};
use e2e::manager::Manager;
use e2e::{
    Arena, Cluster, Diary, Keys, LONG, SHORT, arena, arena_of_its_own, condition, connect, holds_for,
    on_volumes, operator, uids, wait_for,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// The lab notices a lost node after eight seconds; the rest is patience with a busy machine.
const NOTICED: Duration = Duration::from_secs(60);

#[tokio::test]
async fn members_of_one_cluster_are_on_different_nodes() -> Result<()> {
    let _alone = ALONE.lock().await;
    let nodes: BTreeSet<_> = nodes(&connect().await?, 3).await?.into_iter().collect();
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let used: BTreeSet<_> = cluster.pods().await?.iter().filter_map(node_of).collect();
        assert_eq!(used.len(), 3, "{used:?} of {nodes:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_node_without_power_costs_one_member_and_no_key() -> Result<()> {
    outage_costs_one_member_and_no_key(Fault::PowerLoss).await
}

#[tokio::test]
async fn a_node_without_network_costs_one_member_and_no_key() -> Result<()> {
    outage_costs_one_member_and_no_key(Fault::NetworkLoss).await
}

async fn outage_costs_one_member_and_no_key(fault: Fault) -> Result<()> {
    let _alone = ALONE.lock().await;
    let client = connect().await?;
    nodes(&client, 3).await?;
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let ids = cluster.member_ids().await?;
        let (lost, node) = member_on_another_node_than(&cluster, &operator::pod(&client).await?).await?;
        let keys = Keys::start(&cluster).await?;

        let diary = Diary::of(&cluster);
        let outage = Outage::begin(fault, &node).await?;
        let began = Instant::now();
        wait_for(&format!("{lost} on {node} to be shown as lost"), NOTICED, async || {
            let status = cluster.status().await?;
            ensure!(status.ready_members == 2, "{} members are ready", status.ready_members);
            Ok(())
        })
        .await?;
        eprintln!("{fault:?} shown after {:.1} s", began.elapsed().as_secs_f32());
        let status = cluster.status().await?;
        assert_eq!(condition(&status.conditions, "Available"), "True/QuorumAvailable");
        assert_eq!(condition(&status.conditions, "Degraded"), "True/MembersUnhealthy");
        for member in cluster.members().await? {
            let ready = condition(&member.status.clone().unwrap_or_default().conditions, "Ready");
            let expected = if member.name_any() == lost { "False/PodNotReady" } else { "True/PodReady" };
            assert_eq!(ready, expected, "{}", member.name_any());
        }
        keys.advance().await?;

        outage.end().await?;
        nodes(&client, 3).await?;
        cluster.settled(3).await?;
        assert_eq!(cluster.member_ids().await?, ids, "the same members");
        keys.advance().await?;
        keys.all_there().await?;
        cluster.has_only_voters(3).await?;
        let said = diary.entries();
        assert!(
            said.iter().all(|entry| entry.available.starts_with("True/")),
            "two of three serve: {said:#?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_member_on_a_node_that_is_gone_for_good_is_replaced() -> Result<()> {
    let _alone = ALONE.lock().await;
    let client = connect().await?;
    nodes(&client, 3).await?;
    arena_of_its_own(async |arena: Arena| {
        // The installed operator would wait for five minutes.
        let operator = Manager::start(&arena, "impatient", None, &["--lost-member-timeout=10"])?;
        operator.leads().await?;
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let pods = cluster.pods().await?;
        let lost = pods.last().context("three Pods")?;
        let keys = Keys::start(&cluster).await?;

        let outage = Outage::begin(Fault::PowerLoss, &node_of(lost).context("it runs")?).await?;
        // What Kubernetes does after five minutes; the Pod can not end, nobody is there to say that it has.
        let soon = DeleteParams::default().grace_period(1);
        arena.api::<Pod>().delete(&lost.name_any(), &soon).await?;
        cluster.without(&lost.name_any()).await?;
        cluster.settled(3).await?;
        cluster.has_only_voters(3).await?;
        keys.advance().await?;
        keys.all_there().await?;

        outage.end().await?;
        nodes(&client, 3).await?;
        Ok(operator)
    })
    .await
}

#[tokio::test]
async fn t27_a_member_without_room_on_a_volume_that_can_move_is_waited_for() -> Result<()> {
    let _alone = ALONE.lock().await;
    let client = connect().await?;
    let all = nodes(&client, 3).await?;
    arena_of_its_own(async |arena: Arena| {
        let operator = Manager::start(&arena, "impatient", None, &["--lost-member-timeout=5"])?;
        operator.leads().await?;
        let volumes = Movable::offer(&arena, 4).await?;
        let mut spec = on_volumes(3);
        spec.storage.storage_class_name = Some(volumes.class.clone());
        let cluster = arena.create("my-etcd", spec).await?;
        cluster.settled(3).await?;
        let before = cluster.identity().await?;
        let waiting = cluster.pods().await?.last().context("three Pods")?.name_any();
        let keys = Keys::start(&cluster).await?;

        // No room anywhere, for a while.
        let cordons = Cordons(all.clone());
        for node in &all {
            run("kubectl", &["cordon", node]).await?;
        }
        arena.api::<Pod>().delete(&waiting, &DeleteParams::default()).await?;
        let pod = arena.api::<Pod>();
        wait_for("the Pod to fit nowhere", LONG, async || {
            let conditions = pod.get(&waiting).await?.status.unwrap_or_default().conditions;
            let mut conditions = conditions.into_iter().flatten();
            ensure!(conditions.any(|c| c.reason.as_deref() == Some("Unschedulable")), "it is not that far");
            Ok(())
        })
        .await?;
        holds_for("the member is kept", Duration::from_secs(30), async || {
            let now = cluster.members().await?;
            let leaving = now.iter().any(|m| m.metadata.deletion_timestamp.is_some());
            ensure!(uids(&now) == before.members && !leaving, "the members are {:?}", uids(&now));
            Ok(())
        })
        .await?;
        keys.advance().await?;

        drop(cordons);
        cluster.settled(3).await?;
        let after = cluster.identity().await?;
        assert_eq!((after.members, after.claims), (before.members, before.claims), "the same members");
        keys.all_there().await?;
        // While its volumes are still there.
        cluster.delete(&DeleteParams::default()).await?;
        wait_for("the claims to go", LONG, async || {
            ensure!(cluster.claims().await?.is_empty(), "they are still there");
            Ok(())
        })
        .await?;
        Ok(operator)
    })
    .await
}

/// Volumes that can be used from every node: directories of the machine that all nodes are on. Gone with this.
struct Movable {
    class: String,
    directories: Vec<PathBuf>,
}

impl Movable {
    async fn offer(arena: &Arena, count: usize) -> Result<Self> {
        let mut offer = Self { class: arena.namespace.clone(), directories: vec![] };
        for number in 0..count {
            let directory = std::env::temp_dir().join(format!("{}-{number}", offer.class));
            std::fs::create_dir(&directory)?;
            offer.directories.push(directory.clone());
            // etcd does not run as root, and nobody gives it a directory of the host.
            std::fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
            let volume = json!({
                "metadata": {"name": format!("{}-{number}", offer.class)},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": offer.class,
                    "hostPath": {"path": directory},
                },
            });
            let volumes: Api<PersistentVolume> = Api::all(arena.client.clone());
            volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        }
        Ok(offer)
    }
}

impl Drop for Movable {
    fn drop(&mut self) {
        for (number, directory) in self.directories.iter().enumerate() {
            let volume = format!("{}-{number}", self.class);
            let _ = std::process::Command::new("kubectl")
                .args(["delete", "pv", &volume, "--wait=false", "--ignore-not-found"])
                .output();
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

#[tokio::test]
async fn draining_a_node_waits_for_the_quorum() -> Result<()> {
    let _alone = ALONE.lock().await;
    let client = connect().await?;
    nodes(&client, 3).await?;
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let ids = cluster.member_ids().await?;
        let keys = Keys::start(&cluster).await?;
        let places: BTreeMap<_, _> =
            cluster.pods().await?.iter().filter_map(|p| Some((node_of(p)?, p.name_any()))).collect();
        let operator = node_of(&operator::pod(&client).await?);
        let mut others = places.keys().filter(|node| Some(*node) != operator.as_ref());
        let (first, second) = others.next().zip(others.next()).context("three members, three nodes")?;

        let _cordons = Cordons(vec![first.clone(), second.clone()]);
        evict(&arena, first, "60s").await?;
        let refused = evict(&arena, second, "10s").await;
        let refused = format!("{:#}", refused.expect_err("the second one would cost the quorum"));
        ensure!(refused.contains("disruption budget"), "{refused}");
        keys.advance().await?;

        run("kubectl", &["uncordon", first, second]).await?;
        cluster.settled(3).await?;
        assert_eq!(cluster.member_ids().await?, ids, "the same members");
        keys.all_there().await?;
        Ok(())
    })
    .await
}

/// Cordons a node and evicts the members of this test from it, the way `kubectl drain` does.
async fn evict(arena: &Arena, node: &str, limit: &str) -> Result<String> {
    let only = format!("--pod-selector={}=my-etcd", labels::CLUSTER);
    let timeout = format!("--timeout={limit}");
    let drained = run("kubectl", &["drain", node, &only, &timeout, "--delete-emptydir-data"]).await;
    drained.with_context(|| format!("members of {} on {node}", arena.namespace))
}

/// Nodes that take Pods again, at the latest when this is dropped.
struct Cordons(Vec<String>);

impl Drop for Cordons {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kubectl").arg("uncordon").args(&self.0).output();
    }
}

#[tokio::test]
async fn a_volume_holds_what_it_says_and_grows_while_in_use() -> Result<()> {
    const GIB: u64 = 1 << 30;
    let _alone = ALONE.lock().await;
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(1)).await?;
        cluster.settled(1).await?;
        let claim = names::pvc(&cluster.members().await?[0].name_any());

        let size = probe(&arena, &claim, &["df", "/data"]).await?;
        assert!(size <= GIB && size > GIB * 9 / 10, "a volume of 1Gi has {size} bytes");
        let written = probe(&arena, &claim, &["fill", "/data/filler"]).await?;
        assert!(written <= GIB && written > GIB / 2, "{written} bytes fit into 1Gi");

        let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
        arena.api::<PersistentVolumeClaim>().patch(&claim, &PatchParams::default(), &patch).await?;
        wait_for("the claim to have grown", SHORT, async || {
            let claim = arena.api::<PersistentVolumeClaim>().get(&claim).await?;
            let capacity = claim.status.unwrap_or_default().capacity.unwrap_or_default();
            ensure!(capacity["storage"].0 == "2Gi", "it has {}", capacity["storage"].0);
            Ok(())
        })
        .await?;
        let size = probe(&arena, &claim, &["df", "/data"]).await?;
        assert!(size <= 2 * GIB && size > GIB * 18 / 10, "a volume of 2Gi has {size} bytes");
        let more = probe(&arena, &claim, &["fill", "/data/filler", "536870912"]).await?;
        assert_eq!(more, GIB / 2, "half of the new space can be used at once");

        // The member had no space for a while; with space it serves.
        cluster.settled(1).await?;
        cluster.voters().await?[0].put("after", "growth").await
    })
    .await
}

/// Runs a probe beside the member, on its volume, and returns the first number it prints.
async fn probe(arena: &Arena, claim: &str, command: &[&str]) -> Result<u64> {
    let pods = arena.api::<Pod>();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "probe"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsUser": 0},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            "containers": [{
                "name": "toolbox",
                "image": "localhost/lab/toolbox:1",
                "imagePullPolicy": "IfNotPresent",
                "args": command,
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let phase = wait_for("the probe to end", LONG, async || {
        let phase = pods.get("probe").await?.status.and_then(|status| status.phase).unwrap_or_default();
        ensure!(matches!(&*phase, "Succeeded" | "Failed"), "it is {phase}");
        Ok(phase)
    })
    .await?;
    let printed = pods.logs("probe", &LogParams::default()).await?;
    ensure!(phase == "Succeeded", "{command:?} on {claim}: {printed}");
    pods.delete("probe", &DeleteParams::default().grace_period(0)).await?;
    wait_for("the probe to go", SHORT, async || {
        ensure!(pods.get_opt("probe").await?.is_none(), "it is still there");
        Ok(())
    })
    .await?;
    let number = printed.split_whitespace().next().with_context(|| format!("{command:?} printed nothing"))?;
    number.parse().with_context(|| format!("{command:?} printed {printed}"))
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// A member whose loss does not take the operator away, and its node.
async fn member_on_another_node_than(cluster: &Cluster, other: &Pod) -> Result<(String, String)> {
    let pods = cluster.pods().await?;
    let pod = pods.iter().find(|pod| node_of(pod) != node_of(other)).context("three members, three nodes")?;
    Ok((pod.name_any(), node_of(pod).context("a running Pod is on a node")?))
}
