//! More members, while clients go on as if nothing happened.

use std::collections::BTreeSet;

use anyhow::Result;
use e2e::{Arena, Keys, arena, on_volumes};
use kube::ResourceExt;

#[tokio::test]
async fn a_cluster_grows_from_three_to_five_under_a_writing_client() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        let before = cluster.settled(3).await?;
        let ids = cluster.member_ids().await?;
        let pods: BTreeSet<_> = cluster.pods().await?.iter().filter_map(ResourceExt::uid).collect();

        let keys = Keys::start(&cluster).await?;
        cluster.scale(5).await?;
        let after = cluster.settled(5).await?;
        keys.advance().await?;
        keys.all_there().await?;

        let cluster_id = |c: api::EtcdCluster| c.status.and_then(|status| status.cluster_id);
        assert_eq!(cluster_id(before), cluster_id(after));
        cluster.has_only_voters(5).await?;
        let grown = cluster.member_ids().await?;
        assert!(ids.iter().all(|(name, id)| grown.get(name) == Some(id)), "{ids:?} are still in {grown:?}");
        let still: BTreeSet<_> = cluster.pods().await?.iter().filter_map(ResourceExt::uid).collect();
        assert!(still.is_superset(&pods), "the first three Pods were left alone");
        Ok(())
    })
    .await
}
