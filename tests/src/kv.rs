//! Keys and values through one particular member.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use etcd::pb::kv_client::KvClient;
use etcd::pb::{PutRequest, RangeRequest};
use etcd::{Endpoint, pb};
use tokio::time::timeout;
use tonic::transport::Channel;

/// Longer than an election takes, so that a write is not given up which was about to succeed.
const LIMIT: Duration = Duration::from_secs(3);

/// A connection to one member.
pub struct Kv {
    pub member: String,
    client: KvClient<Channel>,
}

impl Kv {
    pub(crate) fn connect(at: &Endpoint) -> Result<Self> {
        let channel = Channel::from_shared(format!("http://{}", at.address))?
            .connect_timeout(Duration::from_secs(1))
            .tcp_nodelay(true)
            .connect_lazy();
        // All keys of a test come in one answer.
        let client = KvClient::new(channel).max_decoding_message_size(64 << 20);
        Ok(Self { member: at.authority.clone(), client })
    }

    /// Success means that a quorum has it.
    pub async fn put(&self, key: &str, value: &str) -> Result<()> {
        let request = PutRequest { key: key.into(), value: value.into() };
        timeout(LIMIT, self.client.clone().put(request))
            .await
            .with_context(|| format!("{} is silent", self.member))??;
        Ok(())
    }

    /// A linearizable read.
    pub async fn get(&self, key: &str) -> Result<Option<String>> {
        let request = RangeRequest { key: key.into(), ..RangeRequest::default() };
        Ok(self.range(request).await?.into_values().next())
    }

    /// What this member has by itself, whatever the others say.
    pub async fn get_local(&self, key: &str) -> Result<Option<String>> {
        let request = RangeRequest { key: key.into(), serializable: true, ..RangeRequest::default() };
        Ok(self.range(request).await?.into_values().next())
    }

    /// All keys with that prefix, read linearizably.
    pub async fn with_prefix(&self, prefix: &str) -> Result<BTreeMap<String, String>> {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        self.range(RangeRequest { key: prefix.into(), range_end: end, ..RangeRequest::default() }).await
    }

    async fn range(&self, request: RangeRequest) -> Result<BTreeMap<String, String>> {
        let answer = timeout(LIMIT, self.client.clone().range(request))
            .await
            .with_context(|| format!("{} is silent", self.member))??;
        let text = |bytes| String::from_utf8(bytes).context("tests write text only");
        let pair = |kv: pb::KeyValue| Ok((text(kv.key)?, text(kv.value)?));
        answer.into_inner().kvs.into_iter().map(pair).collect()
    }
}
