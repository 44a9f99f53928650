//! The pool against a server that speaks etcd's protocol on a local port.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd::pb::cluster_server::{Cluster, ClusterServer};
use etcd::pb::maintenance_server::{Maintenance, MaintenanceServer};
use etcd::{Endpoint, Error, Etcd as _, Pool, pb};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Answers like one member, and notes what it was asked.
#[derive(Clone, Default)]
struct Member {
    lists: Arc<Mutex<Vec<bool>>>,
    /// Where calls came from: one address for each connection.
    callers: Arc<Mutex<BTreeSet<SocketAddr>>>,
    silent: bool,
}

#[tonic::async_trait]
impl Maintenance for Member {
    async fn status(
        &self,
        request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).extend(request.remote_addr());
        if self.silent {
            std::future::pending::<()>().await;
        }
        let header = Some(pb::ResponseHeader { cluster_id: 7, member_id: 9, ..Default::default() });
        Ok(Response::new(pb::StatusResponse {
            header,
            version: "3.6.16".into(),
            leader: 9,
            ..Default::default()
        }))
    }

    async fn move_leader(
        &self,
        _: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        Err(Status::failed_precondition("etcdserver: not leader"))
    }
}

#[tonic::async_trait]
impl Cluster for Member {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).push(request.get_ref().linearizable);
        let header = Some(pb::ResponseHeader { cluster_id: 7, ..Default::default() });
        let peer_ur_ls = vec!["http://a:2380".to_owned()];
        let members = vec![pb::Member { id: 9, name: "a".into(), peer_ur_ls, ..Default::default() }];
        Ok(Response::new(pb::MemberListResponse { header, members }))
    }

    async fn member_add(
        &self,
        _: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        Err(Status::unavailable("etcdserver: unhealthy cluster"))
    }

    async fn member_remove(
        &self,
        _: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        Err(Status::not_found("etcdserver: member not found"))
    }

    async fn member_promote(
        &self,
        _: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        Err(Status::failed_precondition(
            "etcdserver: can only promote a learner member which is in sync with leader",
        ))
    }
}

async fn serve(member: Member) -> std::io::Result<Endpoint> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?;
    let server = tonic::transport::Server::builder()
        .add_service(MaintenanceServer::new(member.clone()))
        .add_service(ClusterServer::new(member));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    Ok(Endpoint {
        identity: "pod-uid".into(),
        address: address.to_string(),
        authority: "c-a.c.ns.svc:2379".into(),
        cluster: None,
    })
}

#[tokio::test]
async fn answers_become_plain_data() {
    let at = serve(Member::default()).await.unwrap();
    let status = Pool::default().status(&at).await.unwrap();
    assert_eq!((status.cluster_id, status.member_id, status.leader), (7, 9, 9));
    assert_eq!(status.version, "3.6.16");
}

#[tokio::test]
async fn membership_is_read_linearizably() {
    let member = Member::default();
    let at = serve(member.clone()).await.unwrap();
    let list = Pool::default().members(&at).await.unwrap();
    assert_eq!(list.cluster_id, 7);
    assert_eq!((&*list.members[0].name, &*list.members[0].peer_urls[0]), ("a", "http://a:2380"));
    assert_eq!(*member.lists.lock().unwrap(), [true]);
}

#[tokio::test]
async fn an_address_that_has_passed_to_another_cluster_is_not_believed() {
    let mut at = serve(Member::default()).await.unwrap();
    let pool = Pool::default();
    at.cluster = Some(7);
    pool.status(&at).await.unwrap();
    pool.members(&at).await.unwrap();
    at.cluster = Some(8);
    let stranger = Error::Stranger { member: "c-a".into() };
    assert_eq!(pool.status(&at).await.unwrap_err(), stranger);
    assert_eq!(pool.members(&at).await.unwrap_err(), stranger);
}

#[tokio::test]
async fn t17_one_connection_serves_all_calls_to_a_member() {
    let member = Member::default();
    let at = serve(member.clone()).await.unwrap();
    let pool = Pool::default();
    for _ in 0..5 {
        pool.status(&at).await.unwrap();
    }
    assert_eq!(member.callers.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn t3_removing_a_member_that_is_already_out_is_a_success() {
    let at = serve(Member::default()).await.unwrap();
    Pool::default().remove(&at, 1).await.unwrap();
}

#[tokio::test]
async fn refusals_are_sorted_by_what_can_be_done() {
    let at = serve(Member::default()).await.unwrap();
    let pool = Pool::default();
    assert_eq!(pool.add_learner(&at, "http://b:2380").await.unwrap_err(), Error::Unhealthy);
    assert_eq!(pool.promote(&at, 1).await.unwrap_err(), Error::LearnerNotReady);
    let refused = Error::Refused { member: "c-a".into(), message: "etcdserver: not leader".into() };
    assert_eq!(pool.move_leader(&at, 1).await.unwrap_err(), refused);
}

#[tokio::test]
async fn t16_a_member_that_does_not_answer_costs_a_bounded_time() {
    let at = serve(Member { silent: true, ..Member::default() }).await.unwrap();
    let began = std::time::Instant::now();
    let error = Pool::default().status(&at).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn nobody_at_the_address_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let at = Endpoint { identity: "x".into(), address, authority: "c-a.c.ns.svc:2379".into(), cluster: None };
    assert_eq!(Pool::default().status(&at).await.unwrap_err(), Error::Unreachable { member: "c-a".into() });
}
