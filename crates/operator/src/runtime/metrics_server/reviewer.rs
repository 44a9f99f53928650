//! Asks the API server who has sent a token, and whether they may read the metrics. It is asked within limits: whoever
//! reaches the port can make the operator ask, and the API server counts these requests as the operator's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::PATH;
use super::verdicts::{TokenDigest, Verdict, Verdicts};
use crate::runtime::sentence;

/// Tokens that are asked about at the same time.
const PLACES: usize = 4;
/// For a place, and for each of the two questions: scrapers give up after ten seconds.
const LIMIT: Duration = Duration::from_secs(3);
/// A place stays taken that long after a question that let nobody in: 16 of them a second is all that guessing gets.
const PAUSE: Duration = Duration::from_millis(250);
/// A server that can not be asked is told of once in this time.
const TOLD_AGAIN: Duration = Duration::from_mins(1);

/// The API server gave no answer that could let anybody in or keep them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

/// Knows whom to let in.
pub struct Reviewer {
    client: Client,
    verdicts: Mutex<Verdicts>,
    places: Arc<Semaphore>,
    told: Mutex<Option<Instant>>,
}

impl Reviewer {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            verdicts: Mutex::default(),
            places: Arc::new(Semaphore::new(PLACES)),
            told: Mutex::default(),
        }
    }

    /// Whether the owner of this token may read the metrics.
    pub async fn review(self: &Arc<Self>, token: &str) -> Result<Verdict, Unanswered> {
        let digest = TokenDigest::of(token);
        if let Some(verdict) = self.verdicts().get(&digest) {
            return Ok(verdict);
        }
        let place = timeout(LIMIT, self.places.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(Unanswered) };
        // Whoever was ahead in the queue may have asked the same.
        if let Some(verdict) = self.verdicts().get(&digest) {
            return Ok(verdict);
        }
        // In a task of its own: hanging up does not free a place for the next guess.
        let asking = tokio::spawn(self.clone().ask_from(place, token.to_owned(), digest));
        asking.await.unwrap_or(Err(Unanswered))
    }

    async fn ask_from(
        self: Arc<Self>,
        place: OwnedSemaphorePermit,
        token: String,
        digest: TokenDigest,
    ) -> Result<Verdict, Unanswered> {
        let answer = self.ask(token).await;
        if let Ok(verdict) = answer {
            self.verdicts().put(digest, verdict);
        }
        if answer != Ok(Verdict::Allowed) {
            tokio::spawn(async move {
                sleep(PAUSE).await;
                drop(place);
            });
        }
        answer
    }

    async fn ask(&self, token: String) -> Result<Verdict, Unanswered> {
        let Some(user) = self.owner(token).await? else { return Ok(Verdict::Unknown) };
        let allowed = self.may_read(user).await?;
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }

    /// Whose token it is, if it is anybody's.
    async fn owner(&self, token: String) -> Result<Option<UserInfo>, Unanswered> {
        let spec = TokenReviewSpec { token, audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let answer = timeout(LIMIT, reviews.create(&PostParams::default(), &review)).await;
        let status = self.heard("TokenReview", answer)?.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn may_read(&self, user: UserInfo) -> Result<bool, Unanswered> {
        let asked = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(asked),
            resource_attributes: None,
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = timeout(LIMIT, reviews.create(&PostParams::default(), &review)).await;
        let status = self.heard("SubjectAccessReview", answer)?.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }

    fn heard<T>(
        &self,
        review: &str,
        answer: Result<kube::Result<T>, tokio::time::error::Elapsed>,
    ) -> Result<T, Unanswered> {
        let why = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => sentence::refusal(review, &error),
            Err(_) => format!("{review}: the API server gave no answer within {} s", LIMIT.as_secs()),
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= TOLD_AGAIN) {
            *told = Some(Instant::now());
            warn!(why, "nobody new can be let in to {PATH}");
        }
        Err(Unanswered)
    }

    fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
