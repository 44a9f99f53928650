//! Waiting for something to become true, without luck and without fixed sleeps.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::time::{Instant, sleep, timeout};

/// For what takes seconds on an idle machine. Limits are generous: they end a test that is lost, they measure nothing.
pub const SHORT: Duration = Duration::from_secs(60);
/// For what takes several Pod starts, or a node.
pub const LONG: Duration = Duration::from_secs(240);

const PAUSE: Duration = Duration::from_millis(200);
/// A single question that takes longer is asked again.
const ANSWER: Duration = Duration::from_secs(20);

/// Asks until the condition holds and returns what it found. Its error says why it does not hold yet, and is shown when
/// the limit is over.
pub async fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let why = match timeout(ANSWER, condition()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(why)) => why,
            Err(_) => anyhow!("no answer within {} s", ANSWER.as_secs()),
        };
        if Instant::now() >= deadline {
            bail!("waited {} s for {what}, but: {why:#}", limit.as_secs());
        }
        sleep(PAUSE).await;
    }
}

/// Asks again and again for that long, and fails as soon as the condition does not hold: for what must not happen.
pub async fn holds_for(
    what: &str,
    time: Duration,
    mut condition: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        condition().await.with_context(|| format!("it does not hold that {what}"))?;
        sleep(PAUSE).await;
    }
    Ok(())
}
