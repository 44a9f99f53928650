//! Operators that come, go, freeze, double and lose their way to the API server.
//!
//! Most have operators of their own, each for its own namespace, and send the installed one away: so a few can run at a time,
//! and none beside those of other files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use api::EtcdCluster;
use e2e::command::run;
use e2e::lab::Frozen;
use e2e::manager::{Manager, api_server};
use e2e::proxy::{Proxy, Weather};
use e2e::{
    Arena, Cluster, Keys, LONG, arena, arena_of_its_own, create_namespace, in_memory, on_volumes, wait_for,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::RwLock;
use tokio::time::sleep;

/// Read by tests with operators of their own, written by one that needs the installed operator or an idle machine.
static FLOOR: RwLock<()> = RwLock::const_new(());

#[tokio::test]
async fn a_second_operator_finishes_what_a_frozen_one_began() -> Result<()> {
    let _shared = FLOOR.read().await;
    arena_of_its_own(async |arena: Arena| {
        let mut first = Manager::start(&arena, "first", None, &[])?;
        first.leads().await?;
        let second = Manager::start(&arena, "second", None, &[])?;
        let cluster = arena.create("my-etcd", in_memory(1)).await?;
        cluster.settled(1).await?;
        let keys = Keys::start(&cluster).await?;

        cluster.scale(5).await?;
        wait_for("the second member to be made", LONG, async || {
            ensure!(cluster.members().await?.len() >= 2, "there is one");
            Ok(())
        })
        .await?;
        first.freeze().await?;
        second.leads().await?;
        cluster.settled(5).await?;
        // It wakes up in the middle of a pass that is long out of date, and goes.
        first.thaw().await?;
        first.ended().await?;
        keys.advance().await?;
        keys.all_there().await?;
        cluster.has_only_voters(5).await?;
        let seeds = cluster.members().await?.iter().filter(|m| m.spec.bootstrap).count();
        assert_eq!(seeds, 1);
        Ok(second)
    })
    .await
}

#[tokio::test]
async fn an_api_server_that_is_away_for_a_while_costs_nothing() -> Result<()> {
    let _shared = FLOOR.read().await;
    arena_of_its_own(async |arena: Arena| {
        let proxy = Arc::new(Proxy::to(&api_server()?).await?);
        let mut operator = Manager::start(&arena, "cut-off", Some(&proxy), &[])?;
        let cluster = arena.create("my-etcd", in_memory(3)).await?;
        cluster.settled(3).await?;
        let ids = cluster.member_ids().await?;
        let keys = Keys::start(&cluster).await?;

        proxy.turn(Weather::Silent);
        // Without its lease it must not act; the kubelet would start it anew.
        operator.ended().await?;
        let operator = Manager::start(&arena, "again", Some(&proxy), &[])?;
        cluster.scale(5).await?;
        sleep(Duration::from_secs(30)).await;
        keys.advance().await?;
        assert_eq!(cluster.member_ids().await?, ids, "nothing can have happened");

        proxy.turn(Weather::Fair);
        cluster.settled(5).await?;
        keys.advance().await?;
        keys.all_there().await?;
        cluster.has_only_voters(5).await?;
        Ok(operator)
    })
    .await
}

#[tokio::test]
async fn a_cluster_forms_and_shrinks_through_a_slow_api_server() -> Result<()> {
    lives_in(Weather::Slow(Duration::from_millis(300))).await
}

#[tokio::test]
async fn a_cluster_forms_and_shrinks_although_answers_of_the_api_server_are_lost() -> Result<()> {
    // Longer than setting up a connection takes, shorter than a cluster does.
    lives_in(Weather::Stormy(Duration::from_millis(1500))).await
}

async fn lives_in(weather: Weather) -> Result<()> {
    let _shared = FLOOR.read().await;
    arena_of_its_own(async |arena: Arena| {
        let proxy = Arc::new(Proxy::to(&api_server()?).await?);
        proxy.turn(weather);
        // Leader election gives up on such a server, and rightly so; here it is about the rest.
        let operator = Manager::start(&arena, "patient", Some(&proxy), &["--leader-elect=false"])?;
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        let id = cluster.settled(3).await?.status.and_then(|s| s.cluster_id);
        cluster.has_only_voters(3).await?;
        let seeds = cluster.members().await?.iter().filter(|m| m.spec.bootstrap).count();
        assert_eq!(seeds, 1);
        let keys = Keys::start(&cluster).await?;
        cluster.scale(1).await?;
        let shrunk = cluster.settled(1).await?;
        assert_eq!(shrunk.status.and_then(|s| s.cluster_id), id);
        keys.all_there().await?;
        Ok(operator)
    })
    .await
}

#[tokio::test]
async fn t30_a_namespace_that_is_listed_late_costs_the_others_nothing() -> Result<()> {
    let _shared = FLOOR.read().await;
    arena_of_its_own(async |arena: Arena| {
        let other = create_namespace(&arena.client, "e2e").await?;
        let other = Arena { namespace: other, ..arena.clone() };
        run("kubectl", &["create", "serviceaccount", "narrow", "--namespace", &arena.namespace]).await?;
        let token = run("kubectl", &["create", "token", "narrow", "--namespace", &arena.namespace]).await?;
        let account = format!("--serviceaccount={}:narrow", arena.namespace);
        let let_in = async |namespace: &str| {
            let role = "--clusterrole=etcd-operator-manager-role";
            run("kubectl", &["create", "rolebinding", "narrow", role, &account, "--namespace", namespace])
                .await
        };

        // It may not look into the other namespace yet, and tries again and again.
        let_in(&arena.namespace).await?;
        let cluster = arena.create("my-etcd", in_memory(1)).await?;
        let namespaces = format!("--watch-namespace={},{}", arena.namespace, other.namespace);
        let operator =
            Manager::start_as(&arena, "narrow", token.trim(), &["--leader-elect=false", &namespaces])?;
        sleep(Duration::from_secs(10)).await;
        let_in(&other.namespace).await?;

        // When it has, what it knows of the first is still there.
        cluster.settled(1).await?;
        let twin = other.create("my-etcd", in_memory(1)).await?;
        twin.settled(1).await?;
        cluster.scale(3).await?;
        cluster.settled(3).await?;
        cluster.has_only_voters(3).await?;
        twin.settled(1).await?;
        twin.delete(&DeleteParams::default()).await?;
        other.wait_until_empty().await?;
        let namespaces: Api<Namespace> = Api::all(arena.client.clone());
        namespaces.delete(&other.namespace, &DeleteParams::default()).await?;
        Ok(operator)
    })
    .await
}

#[tokio::test]
async fn t16_silent_clusters_do_not_delay_their_neighbours() -> Result<()> {
    const SILENT: usize = 6;
    let _alone = FLOOR.write().await;
    arena_of_its_own(async |arena: Arena| {
        // Fewer workers than clusters that would keep one busy each.
        let operator = Manager::start(&arena, "busy", None, &["--workers=4"])?;
        operator.leads().await?;
        let mut silent = vec![];
        for number in 0..SILENT {
            silent.push(arena.create(&format!("silent-{number}"), in_memory(1)).await?);
        }
        for cluster in &silent {
            cluster.settled(1).await?;
        }
        let took = async |name: &str| -> Result<Duration> {
            let began = Instant::now();
            arena.create(name, in_memory(1)).await?.settled(1).await?;
            Ok(began.elapsed())
        };
        let usually = took("before").await?;
        let mut frozen = vec![];
        for cluster in &silent {
            let pod = cluster.pods().await?[0].name_any();
            frozen.push(Frozen::begin(&arena.namespace, &pod).await?);
        }
        for cluster in &silent {
            cluster.says("Available", "False/QuorumLost").await?;
        }
        let now = took("after").await?;
        eprintln!("a cluster of one: {usually:.1?} among healthy ones, {now:.1?} among {SILENT} silent ones");
        assert!(now < usually * 3, "{now:?} instead of {usually:?}");
        drop(frozen);
        for cluster in &silent {
            cluster.settled(1).await?;
        }
        Ok(operator)
    })
    .await
}

#[tokio::test]
async fn t16_an_object_that_can_not_be_read_is_named_and_harms_nobody() -> Result<()> {
    let _alone = FLOOR.write().await;
    arena(async |arena: Arena| {
        // Under our own schema nothing unreadable is stored; somebody else's may be laxer.
        let lax = LaxDeadline::begin().await?;
        let mut object = serde_json::to_value(EtcdCluster::new("unreadable", in_memory(1)))?;
        object["spec"]["progressDeadlineSeconds"] = json!(5_000_000_000_i64);
        let kind = ApiResource::erase::<EtcdCluster>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(arena.client.clone(), &arena.namespace, &kind);
        let object = serde_json::from_value(object)?;
        wait_for("the API server to have the laxer schema", LONG, async || {
            Ok(api.create(&PostParams::default(), &object).await.map(drop)?)
        })
        .await?;
        arena.warned("EtcdCluster unreadable can not be read").await?;
        let neighbour = arena.create("neighbour", in_memory(1)).await;

        // Corrected, it is a cluster like any other; also for the test, which could not list it.
        let readable = Patch::Merge(json!({"spec": {"progressDeadlineSeconds": 600}}));
        api.patch("unreadable", &PatchParams::default(), &readable).await?;
        drop(lax);
        neighbour?.settled(1).await?;
        Cluster { arena: arena.clone(), name: "unreadable".to_owned() }.settled(1).await.map(drop)
    })
    .await
}

/// A deadline that may be any number, until this is dropped.
struct LaxDeadline;

impl LaxDeadline {
    const CRD: &str = "crd/etcdclusters.etcd-operator.cozystack.io";

    fn patch(format: &str) -> String {
        let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/progressDeadlineSeconds/format";
        json!([{"op": "replace", "path": field, "value": format}]).to_string()
    }

    async fn begin() -> Result<Self> {
        let lax = Self;
        run("kubectl", &["patch", Self::CRD, "--type=json", "--patch", &Self::patch("int64")]).await?;
        Ok(lax)
    }
}

impl Drop for LaxDeadline {
    fn drop(&mut self) {
        let strict = ["patch", Self::CRD, "--type=json", "--patch", &Self::patch("int32")];
        if !std::process::Command::new("kubectl").args(strict).output().is_ok_and(|o| o.status.success()) {
            eprintln!("the schema of EtcdClusters could not be restored");
        }
    }
}
