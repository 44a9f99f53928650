//! One connection per member while there is something to talk about, with a hard limit on every call.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tonic::transport::Channel;

use crate::pb::auth_client::AuthClient;
use crate::pb::cluster_client::ClusterClient;
use crate::pb::maintenance_client::MaintenanceClient;
use crate::{Endpoint, Error, Etcd, Membership, READ_LIMIT, STATUS_LIMIT, Status, WRITE_LIMIT, pb};

const CONNECT_LIMIT: Duration = Duration::from_millis(1000);
/// Longer than the longest pause between two looks at a cluster in motion. At rest a member is asked twice a minute, and a
/// connection that waits for that costs more memory than a new one costs time.
const IDLE_LIMIT: Duration = Duration::from_secs(6);
/// Connections that are kept. A thousand clusters in motion would keep thousands, at tens of kilobytes each.
const MOST: usize = 128;

/// The real etcd: gRPC over pooled connections.
#[derive(Default)]
pub struct Pool {
    connections: Mutex<HashMap<Endpoint, Connection>>,
}

struct Connection {
    channel: Channel,
    used: Instant,
}

impl Pool {
    fn channel(&self, at: &Endpoint) -> Result<Channel, Error> {
        let now = Instant::now();
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = connections.get_mut(at) {
            known.used = now;
            return Ok(known.channel.clone());
        }
        connections.retain(|_, c| now.duration_since(c.used) < IDLE_LIMIT);
        if connections.len() >= MOST
            && let Some(oldest) = connections.iter().min_by_key(|(_, c)| c.used).map(|(at, _)| at.clone())
        {
            // A call that still runs on it keeps it until it ends.
            connections.remove(&oldest);
        }
        let channel = connect(at)?;
        connections.insert(at.clone(), Connection { channel: channel.clone(), used: now });
        Ok(channel)
    }

    fn forget(&self, at: &Endpoint) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).remove(at);
    }

    /// Runs one call within its limit. A connection that did not answer is dropped: it may lead to a host that is gone,
    /// and TCP would take minutes to say so.
    async fn call<T: Answer, F>(
        &self,
        at: &Endpoint,
        limit: Duration,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let channel = self.channel(at)?;
        match tokio::time::timeout(limit, call(channel)).await {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                at.believe(answer.header().map_or(0, |header| header.cluster_id))?;
                Ok(answer)
            }
            Ok(Err(status)) => Err(Error::from_status(at.member(), &status)),
            Err(_) => {
                self.forget(at);
                Err(Error::Timeout { member: at.member().to_owned(), limit })
            }
        }
    }
}

/// Every answer says which cluster it comes from, as far as etcd fills that in.
trait Answer {
    fn header(&self) -> Option<&pb::ResponseHeader>;
}

macro_rules! answers {
    ($($message:ident),*) => {$(
        impl Answer for pb::$message {
            fn header(&self) -> Option<&pb::ResponseHeader> {
                self.header.as_ref()
            }
        }
    )*};
}

answers!(
    StatusResponse,
    MemberListResponse,
    MemberAddResponse,
    MemberPromoteResponse,
    MemberRemoveResponse,
    MoveLeaderResponse,
    AuthStatusResponse
);

fn connect(at: &Endpoint) -> Result<Channel, Error> {
    let unusable = |_| Error::Unreachable { member: at.member().to_owned() };
    let origin: http::Uri = format!("http://{}", at.authority)
        .parse()
        .map_err(|_| Error::Unreachable { member: at.member().to_owned() })?;
    Ok(Channel::from_shared(format!("http://{}", at.address))
        .map_err(|_| Error::Unreachable { member: at.member().to_owned() })?
        .origin(origin)
        .connect_timeout(CONNECT_LIMIT)
        .tcp_nodelay(true)
        .user_agent("etcd-operator")
        .map_err(unusable)?
        .connect_lazy())
}

#[async_trait]
impl Etcd for Pool {
    async fn status(&self, at: &Endpoint) -> Result<Status, Error> {
        let call = |channel| async { MaintenanceClient::new(channel).status(pb::StatusRequest {}).await };
        self.call(at, STATUS_LIMIT, call).await.map(Status::from)
    }

    async fn members(&self, at: &Endpoint) -> Result<Membership, Error> {
        let request = pb::MemberListRequest { linearizable: true };
        let call = |channel| async { ClusterClient::new(channel).member_list(request).await };
        let answer = self.call(at, READ_LIMIT, call).await?;
        Ok(Membership::from_pb(answer.header.as_ref(), answer.members))
    }

    async fn add_learner(&self, at: &Endpoint, peer_url: &str) -> Result<Membership, Error> {
        let request = pb::MemberAddRequest { peer_ur_ls: vec![peer_url.to_owned()], is_learner: true };
        let call = |channel| async { ClusterClient::new(channel).member_add(request).await };
        let answer = self.call(at, WRITE_LIMIT, call).await?;
        Ok(Membership::from_pb(answer.header.as_ref(), answer.members))
    }

    async fn promote(&self, at: &Endpoint, id: u64) -> Result<Membership, Error> {
        let request = pb::MemberPromoteRequest { id };
        let call = |channel| async { ClusterClient::new(channel).member_promote(request).await };
        let answer = self.call(at, WRITE_LIMIT, call).await?;
        Ok(Membership::from_pb(answer.header.as_ref(), answer.members))
    }

    async fn move_leader(&self, at: &Endpoint, to: u64) -> Result<(), Error> {
        let request = pb::MoveLeaderRequest { target_id: to };
        let call = |channel| async { MaintenanceClient::new(channel).move_leader(request).await };
        self.call(at, WRITE_LIMIT, call).await.map(drop)
    }

    async fn remove(&self, at: &Endpoint, id: u64) -> Result<(), Error> {
        let request = pb::MemberRemoveRequest { id };
        let call = |channel| async { ClusterClient::new(channel).member_remove(request).await };
        match self.call(at, WRITE_LIMIT, call).await {
            // T3: the first try may have succeeded without our hearing of it.
            Ok(_) | Err(Error::MemberNotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Of all questions that change nothing, this one goes through the log.
    async fn persist(&self, at: &Endpoint) -> Result<(), Error> {
        let call = |channel| async { AuthClient::new(channel).auth_status(pb::AuthStatusRequest {}).await };
        self.call(at, WRITE_LIMIT, call).await.map(drop)
    }
}
