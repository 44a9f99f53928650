//! Simulated etcd members: one server that answers for all of them and tells them apart by the address that was dialled.
//! Behind it is a plain model of membership, with no data, no elections and no delays: what is measured is the operator.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use etcd::pb;
use etcd::pb::auth_server::{Auth, AuthServer};
use etcd::pb::cluster_server::{Cluster, ClusterServer};
use etcd::pb::maintenance_server::{Maintenance, MaintenanceServer};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::flags;
use crate::meter::Counts;

/// All members of the fleet. Clones share them.
#[derive(Clone, Default)]
pub struct Members(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By token: what the members of a cluster have in common.
    clusters: HashMap<String, Formed>,
    running: HashMap<IpAddr, Running>,
    calls: Counts,
    /// Clusters that were asked for their members since the last time that was forgotten.
    asked: BTreeSet<String>,
    last_id: u64,
}

struct Formed {
    id: u64,
    rows: Vec<pb::Member>,
    /// Peer URLs of the members that answer.
    answering: BTreeSet<String>,
}

/// A process at an address.
#[derive(Clone)]
struct Running {
    token: String,
    peer_url: String,
}

impl Members {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a member with the command line of its Pod.
    pub fn start(&self, at: IpAddr, line: &[String]) -> Result<()> {
        let flag =
            |name| flags::get(line, name).with_context(|| format!("etcd was started without --{name}"));
        let (name, token) = (flag("name")?.to_owned(), flag("initial-cluster-token")?.to_owned());
        let peer_url = flag("initial-advertise-peer-urls")?.to_owned();
        let new = flag("initial-cluster-state")? == "new";
        let mut state = self.lock();
        if new && !state.clusters.contains_key(&token) {
            let (id, member) = (state.fresh_id(), state.fresh_id());
            let rows = vec![row(member, &name, &peer_url, false)];
            state.clusters.insert(token.clone(), Formed { id, rows, answering: BTreeSet::new() });
        }
        let formed = state.clusters.get_mut(&token).context("there is no such cluster to join")?;
        let row = formed.rows.iter_mut().find(|row| row.peer_ur_ls.contains(&peer_url));
        row.context("it is not on the list of the cluster it joins")?.name = name;
        formed.answering.insert(peer_url.clone());
        state.running.insert(at, Running { token, peer_url });
        Ok(())
    }

    /// Ends a member. Its place on the list stays.
    pub fn stop(&self, at: IpAddr) {
        self.silence(at, true);
        self.lock().running.remove(&at);
    }

    /// Lets a member fall silent, or speak again.
    pub fn silence(&self, at: IpAddr, silent: bool) {
        let mut state = self.lock();
        let Some(Running { token, peer_url }) = state.running.get(&at).cloned() else { return };
        let Some(formed) = state.clusters.get_mut(&token) else { return };
        if silent {
            formed.answering.remove(&peer_url);
        } else {
            formed.answering.insert(peer_url);
        }
    }

    /// Calls so far, by method.
    pub fn calls(&self) -> Counts {
        self.lock().calls.clone()
    }

    /// Begins to note anew which clusters are asked.
    pub fn forget_asked(&self) {
        self.lock().asked.clear();
    }

    /// How many clusters were asked for their members.
    pub fn asked(&self) -> usize {
        self.lock().asked.len()
    }

    /// Forgets everything but the counts.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.clusters.clear();
        state.running.clear();
    }

    /// Answers until dropped.
    pub async fn serve(self, listener: TcpListener) -> Result<()> {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = Server::builder()
            .add_service(MaintenanceServer::new(self.clone()))
            .add_service(AuthServer::new(self.clone()))
            .add_service(ClusterServer::new(self));
        Ok(server.serve_with_incoming(incoming).await?)
    }

    /// Counts a call and finds out who was called. A member that is silent or not there sounds like a closed port.
    fn called<T>(&self, request: &Request<T>, method: &str) -> Result<Called<'_>, Status> {
        let at = request.local_addr().map(|address| address.ip());
        let mut state = self.lock();
        *state.calls.entry(method.to_owned()).or_default() += 1;
        let refused = || Status::unavailable("connection refused");
        let Running { token, peer_url } =
            at.and_then(|at| state.running.get(&at)).cloned().ok_or_else(refused)?;
        let answers = state.clusters.get(&token).is_some_and(|formed| formed.answering.contains(&peer_url));
        if answers { Ok(Called { state, token, peer_url }) } else { Err(refused()) }
    }
}

/// One call to one member.
struct Called<'a> {
    state: MutexGuard<'a, State>,
    token: String,
    peer_url: String,
}

impl State {
    fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        // Looks like one of etcd's, and is never zero.
        self.last_id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }
}

impl Called<'_> {
    fn formed(&mut self) -> Result<&mut Formed, Status> {
        self.state.clusters.get_mut(&self.token).ok_or_else(|| Status::unavailable("connection refused"))
    }

    fn me(&mut self) -> Result<pb::Member, Status> {
        let url = self.peer_url.clone();
        let row = self.formed()?.rows.iter().find(|row| row.peer_ur_ls.contains(&url)).cloned();
        // A member that was removed ends.
        row.ok_or_else(|| Status::unavailable("connection refused"))
    }

    /// The first voter that answers, if a majority of them does.
    fn leader(&mut self) -> Result<Option<u64>, Status> {
        let formed = self.formed()?;
        let voters: Vec<_> = formed.rows.iter().filter(|row| !row.is_learner).collect();
        let answers = |row: &&&pb::Member| row.peer_ur_ls.iter().any(|url| formed.answering.contains(url));
        let alive: Vec<_> = voters.iter().filter(answers).collect();
        Ok(alive.first().filter(|_| alive.len() >= etcd::quorum(voters.len())).map(|row| row.id))
    }

    fn header(&mut self) -> Result<Option<pb::ResponseHeader>, Status> {
        let (cluster_id, member_id) = (self.formed()?.id, self.me()?.id);
        Ok(Some(pb::ResponseHeader { cluster_id, member_id, ..Default::default() }))
    }

    /// What goes through the quorum is refused by learners, and without one.
    fn through_quorum(&mut self) -> Result<&mut Formed, Status> {
        if self.me()?.is_learner {
            return Err(Status::unavailable("etcdserver: rpc not supported for learner"));
        }
        if self.leader()?.is_none() {
            return Err(Status::unavailable("etcdserver: no leader"));
        }
        self.formed()
    }
}

fn row(id: u64, name: &str, peer_url: &str, is_learner: bool) -> pb::Member {
    let peer_ur_ls = vec![peer_url.to_owned()];
    pb::Member { id, name: name.to_owned(), peer_ur_ls, client_ur_ls: Vec::new(), is_learner }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Auth for Members {
    async fn auth_status(&self, request: Request<pb::AuthStatusRequest>) -> Answer<pb::AuthStatusResponse> {
        let mut called = self.called(&request, "AuthStatus")?;
        called.through_quorum()?;
        Ok(Response::new(pb::AuthStatusResponse { header: called.header()?, enabled: false }))
    }
}

#[tonic::async_trait]
impl Maintenance for Members {
    async fn status(&self, request: Request<pb::StatusRequest>) -> Answer<pb::StatusResponse> {
        let mut called = self.called(&request, "Status")?;
        Ok(Response::new(pb::StatusResponse {
            header: called.header()?,
            version: "3.6.16".to_owned(),
            db_size: 20480,
            db_size_in_use: 16384,
            leader: called.leader()?.unwrap_or_default(),
            is_learner: called.me()?.is_learner,
            ..Default::default()
        }))
    }

    async fn move_leader(&self, request: Request<pb::MoveLeaderRequest>) -> Answer<pb::MoveLeaderResponse> {
        let mut called = self.called(&request, "MoveLeader")?;
        let target = request.get_ref().target_id;
        let formed = called.through_quorum()?;
        let position = formed.rows.iter().position(|row| row.id == target && !row.is_learner);
        let position =
            position.ok_or_else(|| Status::failed_precondition("etcdserver: bad leader transferee"))?;
        formed.rows[..=position].rotate_right(1);
        Ok(Response::new(pb::MoveLeaderResponse { header: called.header()? }))
    }
}

#[tonic::async_trait]
impl Cluster for Members {
    async fn member_list(&self, request: Request<pb::MemberListRequest>) -> Answer<pb::MemberListResponse> {
        let mut called = self.called(&request, "MemberList")?;
        let members = called.through_quorum()?.rows.clone();
        let token = called.token.clone();
        called.state.asked.insert(token);
        Ok(Response::new(pb::MemberListResponse { header: called.header()?, members }))
    }

    async fn member_add(&self, request: Request<pb::MemberAddRequest>) -> Answer<pb::MemberAddResponse> {
        let mut called = self.called(&request, "MemberAdd")?;
        let wanted = request.into_inner();
        let peer_url = wanted.peer_ur_ls.first().cloned().unwrap_or_default();
        let id = called.state.fresh_id();
        let formed = called.through_quorum()?;
        if formed.rows.iter().any(|row| row.peer_ur_ls.contains(&peer_url)) {
            return Err(Status::failed_precondition("etcdserver: Peer URLs already exists"));
        }
        let member = row(id, "", &peer_url, wanted.is_learner);
        formed.rows.push(member.clone());
        let members = formed.rows.clone();
        Ok(Response::new(pb::MemberAddResponse { header: called.header()?, member: Some(member), members }))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Answer<pb::MemberRemoveResponse> {
        let mut called = self.called(&request, "MemberRemove")?;
        let header = called.header()?;
        let formed = called.through_quorum()?;
        let before = formed.rows.len();
        formed.rows.retain(|row| row.id != request.get_ref().id);
        if formed.rows.len() == before {
            return Err(Status::not_found("etcdserver: member not found"));
        }
        let members = formed.rows.clone();
        Ok(Response::new(pb::MemberRemoveResponse { header, members }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Answer<pb::MemberPromoteResponse> {
        let mut called = self.called(&request, "MemberPromote")?;
        let formed = called.through_quorum()?;
        let learner = formed.rows.iter_mut().find(|row| row.id == request.get_ref().id);
        let learner = learner.ok_or_else(|| Status::not_found("etcdserver: member not found"))?;
        if learner.name.is_empty() {
            let text = "etcdserver: can only promote a learner member which is in sync with leader";
            return Err(Status::failed_precondition(text));
        }
        learner.is_learner = false;
        let members = formed.rows.clone();
        Ok(Response::new(pb::MemberPromoteResponse { header: called.header()?, members }))
    }
}

#[cfg(test)]
mod tests {
    use etcd::{Endpoint, Error, Etcd as _, Pool};

    use super::*;

    const PORT: u16 = 0;

    /// The real client on loopback addresses; each is another member.
    struct Wire {
        members: Members,
        pool: Pool,
        port: u16,
    }

    impl Wire {
        async fn new() -> Self {
            let listener = TcpListener::bind(("0.0.0.0", PORT)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let members = Members::default();
            tokio::spawn(members.clone().serve(listener));
            Self { members, pool: Pool::default(), port }
        }

        fn at(&self, last: u8) -> Endpoint {
            Endpoint {
                identity: format!("pod-{last}"),
                address: format!("127.9.0.{last}:{}", self.port),
                authority: format!("m{last}.c.ns.svc:2379"),
                cluster: None,
            }
        }

        fn start(&self, last: u8, token: &str, state: &str) -> Result<()> {
            let line = [
                "etcd".to_owned(),
                format!("--name=m{last}"),
                format!("--initial-advertise-peer-urls={}", url(last)),
                format!("--initial-cluster-token={token}"),
                format!("--initial-cluster-state={state}"),
            ];
            self.members.start(IpAddr::from([127, 9, 0, last]), &line)
        }
    }

    fn url(last: u8) -> String {
        format!("http://m{last}:2380")
    }

    fn id_of(list: &etcd::Membership, last: u8) -> u64 {
        list.members.iter().find(|row| row.peer_urls.contains(&url(last))).unwrap().id
    }

    #[tokio::test]
    async fn a_cluster_forms_grows_and_shrinks_through_the_real_client() {
        let wire = Wire::new().await;
        wire.start(1, "c", "new").unwrap();
        let seed = wire.at(1);
        let status = wire.pool.status(&seed).await.unwrap();
        assert_eq!(status.leader, status.member_id);

        let list = wire.pool.add_learner(&seed, &url(2)).await.unwrap();
        let id = id_of(&list, 2);
        assert_eq!(wire.pool.promote(&seed, id).await, Err(Error::LearnerNotReady), "it has not started");
        wire.start(2, "c", "existing").unwrap();
        assert!(wire.pool.status(&wire.at(2)).await.unwrap().is_learner);
        assert!(wire.pool.members(&wire.at(2)).await.is_err(), "learners have no list to give");
        wire.pool.promote(&seed, id).await.unwrap();

        let list = wire.pool.members(&wire.at(2)).await.unwrap();
        assert_eq!(list.voters().count(), 2);
        assert_eq!(list.cluster_id, status.cluster_id);
        wire.pool.move_leader(&seed, id).await.unwrap();
        assert_eq!(wire.pool.status(&seed).await.unwrap().leader, id);
        wire.pool.remove(&seed, id).await.unwrap();
        assert!(wire.pool.status(&wire.at(2)).await.is_err(), "who was removed does not speak");
        assert_eq!(wire.members.calls()["MemberAdd"], 1);
    }

    #[tokio::test]
    async fn clusters_on_other_addresses_know_nothing_of_each_other() {
        let wire = Wire::new().await;
        wire.start(1, "a", "new").unwrap();
        wire.start(2, "b", "new").unwrap();
        let (a, b) = (wire.at(1), wire.at(2));
        let (a, b) = (wire.pool.members(&a).await.unwrap(), wire.pool.members(&b).await.unwrap());
        assert_ne!(a.cluster_id, b.cluster_id);
        assert_eq!(wire.members.asked(), 2);
        assert!(wire.start(3, "c", "existing").is_err(), "there is nothing to join");
        assert!(wire.start(3, "a", "existing").is_err(), "nobody has added it");
    }

    #[tokio::test]
    async fn a_silent_majority_has_no_leader_and_a_silent_member_does_not_answer() {
        let wire = Wire::new().await;
        wire.start(1, "c", "new").unwrap();
        let list = wire.pool.add_learner(&wire.at(1), &url(2)).await.unwrap();
        wire.start(2, "c", "existing").unwrap();
        wire.pool.promote(&wire.at(1), id_of(&list, 2)).await.unwrap();

        let second = IpAddr::from([127, 9, 0, 2]);
        wire.members.silence(second, true);
        let silent = wire.pool.status(&wire.at(2)).await;
        assert_eq!(silent, Err(Error::Unreachable { member: "m2".into() }));
        assert_eq!(wire.pool.status(&wire.at(1)).await.unwrap().leader, 0);
        assert!(wire.pool.members(&wire.at(1)).await.is_err());
        wire.members.silence(second, false);
        assert!(wire.pool.members(&wire.at(1)).await.is_ok());
        wire.members.stop(second);
        assert!(wire.pool.status(&wire.at(2)).await.is_err());
    }
}
