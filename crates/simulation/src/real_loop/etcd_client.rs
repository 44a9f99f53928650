//! The operator's etcd client, with the model at the other end: the same limits, the same errors, and the faults of the
//! script on the way.

use std::time::Duration;

use async_trait::async_trait;
use etcd::{Endpoint, Error, Etcd, Membership, READ_LIMIT, STATUS_LIMIT, Status, WRITE_LIMIT};
use tokio::time::sleep;

use super::Stage;
use crate::etcd::{Request, Response};
use crate::invariants::Before;
use crate::script::Fate;

/// Stands where the operator has its pool of connections.
pub struct EtcdClient {
    pub stage: Stage,
}

impl EtcdClient {
    async fn ask(&self, at: &Endpoint, request: Request, limit: Duration) -> Result<Response, Error> {
        let (member, millis) = (at.member().to_owned(), Duration::from_millis);
        let silence = Error::Timeout { member: member.clone(), limit };
        let (latency, reaches, fate) = {
            let mut world = self.stage.world();
            let fate = if request == Request::Status { None } else { world.fate() };
            (world.within(1, 4), world.reaches_address(&at.address), fate)
        };
        if !reaches || matches!(fate, Some(Fate::RequestLost | Fate::DieBefore)) {
            sleep(limit).await;
            return Err(silence);
        }
        match fate {
            Some(Fate::Late(by)) => {
                let (stage, at) = (self.stage.clone(), at.clone());
                tokio::spawn(async move {
                    sleep(limit + millis(by)).await;
                    let _ = carry_out(&stage, &at, &member, request);
                });
                sleep(limit).await;
                Err(silence)
            }
            Some(Fate::AnswerLost | Fate::DieAfter) => {
                sleep(millis(latency)).await;
                let _ = carry_out(&self.stage, at, &member, request);
                sleep(limit).await;
                Err(silence)
            }
            fate => {
                sleep(millis(latency)).await;
                let answer = carry_out(&self.stage, at, &member, request);
                if let Some(Fate::Slow(by)) = fate {
                    sleep(millis(by).min(limit - millis(1))).await;
                }
                if matches!(answer, Err(Error::Timeout { .. })) {
                    sleep(limit).await;
                }
                answer
            }
        }
    }
}

/// The request arrives at whoever has the address by now.
fn carry_out(stage: &Stage, at: &Endpoint, member: &str, request: Request) -> Result<Response, Error> {
    let now = stage.now();
    let mut world = stage.world();
    world.advance(now);
    if matches!(request, Request::Status | Request::Members) {
        return world.ask_etcd(at, request);
    }
    let before = Before::of(&mut world);
    let what = format!("etcd at {member}: {request:?}");
    let answer = world.ask_etcd(at, request);
    world.note(|_| {
        format!("  {what}: {}", answer.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned()))
    });
    if let Some(violation) = before.quorum_kept(&mut world, &what, 0) {
        world.ledger.violate(violation);
    }
    answer
}

#[async_trait]
impl Etcd for EtcdClient {
    async fn status(&self, at: &Endpoint) -> Result<Status, Error> {
        let answer = self.ask(at, Request::Status, STATUS_LIMIT).await?;
        answer.status().ok_or_else(|| Error::Unreachable { member: at.authority.clone() })
    }

    async fn members(&self, at: &Endpoint) -> Result<Membership, Error> {
        let answer = self.ask(at, Request::Members, READ_LIMIT).await?;
        answer.members().ok_or_else(|| Error::Unreachable { member: at.authority.clone() })
    }

    async fn add_learner(&self, at: &Endpoint, peer_url: &str) -> Result<Membership, Error> {
        let answer = self.ask(at, Request::AddLearner { peer_url: peer_url.to_owned() }, WRITE_LIMIT).await?;
        answer.members().ok_or_else(|| Error::Unreachable { member: at.authority.clone() })
    }

    async fn promote(&self, at: &Endpoint, id: u64) -> Result<Membership, Error> {
        let answer = self.ask(at, Request::Promote { id }, WRITE_LIMIT).await?;
        answer.members().ok_or_else(|| Error::Unreachable { member: at.authority.clone() })
    }

    async fn move_leader(&self, at: &Endpoint, to: u64) -> Result<(), Error> {
        self.ask(at, Request::MoveLeader { to }, WRITE_LIMIT).await.map(drop)
    }

    async fn remove(&self, at: &Endpoint, id: u64) -> Result<(), Error> {
        self.ask(at, Request::Remove { id }, WRITE_LIMIT).await.map(drop)
    }

    async fn persist(&self, at: &Endpoint) -> Result<(), Error> {
        self.ask(at, Request::Persist, WRITE_LIMIT).await.map(drop)
    }
}
