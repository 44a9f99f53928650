//! The test kit notices what it is there to notice.

use anyhow::{Context as _, Result};
use e2e::{Arena, Keys, arena, in_memory};

#[tokio::test]
async fn a_write_that_was_acknowledged_and_lost_is_noticed() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("forgetful", in_memory(1)).await?;
        cluster.settled(1).await?;
        let keys = Keys::start(&cluster).await?;
        // A key of the writer's, with a value that it did not write.
        let key = keys.first().context("something was acknowledged")?;
        cluster.voters().await?[0].put(&key, "something else").await?;
        let complaint = keys.all_there().await.expect_err("a key is not as it was written").to_string();
        assert!(complaint.contains("1 of ") && complaint.contains(&key), "{complaint}");
        Ok(())
    })
    .await
}
