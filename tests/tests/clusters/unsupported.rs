//! Objects of kinds that nothing is done about yet say so, instead of waiting in silence.

use anyhow::{Context as _, Result, ensure};
use api::{
    EtcdDefrag, EtcdDefragSpec, EtcdSnapshot, EtcdSnapshotSpec, PvcLocation, SnapshotLocation, conditions,
};
use e2e::{Arena, SHORT, arena, wait_for};
use k8s_openapi::api::core::v1::LocalObjectReference;
use kube::api::PostParams;

#[tokio::test]
async fn an_object_that_nobody_works_on_is_told_so() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster_ref = LocalObjectReference { name: "my-etcd".to_owned() };
        let pvc = PvcLocation { claim_name: "backups".to_owned(), ..PvcLocation::default() };
        let destination = SnapshotLocation { pvc: Some(pvc), ..SnapshotLocation::default() };
        let snapshot = EtcdSnapshotSpec { cluster_ref: cluster_ref.clone(), destination };
        let defrag = EtcdDefragSpec { cluster_ref, ..EtcdDefragSpec::default() };
        let params = PostParams::default();
        arena.api().create(&params, &EtcdSnapshot::new("nightly", snapshot)).await?;
        arena.api().create(&params, &EtcdDefrag::new("weekly", defrag)).await?;
        wait_for("both to be told that nothing is done about them", SHORT, async || {
            let snapshot = arena.api::<EtcdSnapshot>().get("nightly").await?.status.context("no status")?;
            let ready = conditions::find(&snapshot.conditions, conditions::READY).context("not told")?;
            ensure!(ready.status == "False" && ready.reason == "Unsupported", "{ready:?}");
            let defrag = arena.api::<EtcdDefrag>().get("weekly").await?.status.context("no status")?;
            let checked =
                conditions::find(&defrag.conditions, conditions::DEFRAG_CHECKED).context("not told")?;
            ensure!(checked.status == "False" && checked.reason == "Unsupported", "{checked:?}");
            Ok(())
        })
        .await?;
        arena.warned("does not take snapshots").await?;
        Ok(())
    })
    .await
}
