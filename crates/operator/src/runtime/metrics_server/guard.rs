//! The door before the metrics: nobody passes without a bearer token, and then only if the API server says so.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};

use super::reviewer::{Reviewer, Unanswered};
use super::verdicts::Verdict;

/// Tokens of service accounts have one kilobyte, those of identity providers some.
const LONGEST_TOKEN: usize = 8 * 1024;

/// Everything behind this door, also what does not exist.
pub fn guarded(router: Router, reviewer: Arc<Reviewer>) -> Router {
    router.layer(from_fn_with_state(reviewer, guard))
}

async fn guard(State(reviewer): State<Arc<Reviewer>>, request: Request, next: Next) -> Response {
    let verdict = match bearer(request.headers()) {
        Some(token) => reviewer.review(token).await,
        None => Ok(Verdict::Unknown),
    };
    match verdict {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Forbidden) => refusal(StatusCode::FORBIDDEN, "this token may not GET /metrics\n"),
        Ok(Verdict::Unknown) => {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "a valid bearer token is needed\n");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            answer
        }
        Err(Unanswered) => {
            let why = "the API server can not be asked about this token at the moment\n";
            refusal(StatusCode::SERVICE_UNAVAILABLE, why)
        }
    }
}

/// Who is not let in does not keep a connection that others could use.
fn refusal(status: StatusCode, why: &'static str) -> Response {
    (status, [(CONNECTION, "close")], why).into_response()
}

/// The token of the one Authorization header, if it can be one at all.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_token = !token.is_empty() && token.len() <= LONGEST_TOKEN && !token.contains([' ', '\t']);
    (scheme.eq_ignore_ascii_case("Bearer") && is_token).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(values: &[&str]) -> HeaderMap {
        let value = |v: &&str| (AUTHORIZATION, HeaderValue::from_str(v).unwrap());
        values.iter().map(value).collect()
    }

    #[test]
    fn a_token_is_what_follows_bearer() {
        assert_eq!(bearer(&sent(&["Bearer abc.def"])), Some("abc.def"));
        assert_eq!(bearer(&sent(&["bearer  abc "])), Some("abc"));
    }

    #[test]
    fn what_can_not_be_a_token_is_not_asked_about() {
        let long = format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1));
        for value in ["", "Bearer", "Bearer ", "Bearer a b", "Basic YTpi", "abc", &long] {
            assert_eq!(bearer(&sent(&[value])), None, "{value:.20}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
        assert_eq!(bearer(&sent(&["Bearer a", "Bearer b"])), None, "which one would it be");
    }
}
