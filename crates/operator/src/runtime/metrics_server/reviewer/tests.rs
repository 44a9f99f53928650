use serde_json::json;
use tokio::time::advance;

use super::super::testing::{FakeApi, Mood};
use super::*;

fn reviewer(api: &FakeApi) -> Arc<Reviewer> {
    Arc::new(Reviewer::new(api.client()))
}

#[tokio::test(start_paused = true)]
async fn whose_token_it_is_and_whether_they_may_are_two_questions() {
    let api = FakeApi::default();
    assert_eq!(reviewer(&api).review("scraper").await, Ok(Verdict::Allowed));
    let asked = api.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0]["spec"], json!({ "token": "scraper" }));
    let wanted = json!({
        "user": "scraper", "uid": "7", "groups": ["g"], "extra": { "pod": ["p"] },
        "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
    });
    assert_eq!(asked[1]["spec"], wanted);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_is_told_apart_from_who_is_not_known() {
    let api = FakeApi::default();
    let reviewer = reviewer(&api);
    assert_eq!(reviewer.review("guest").await, Ok(Verdict::Forbidden));
    assert_eq!(reviewer.review("stranger").await, Ok(Verdict::Unknown));
    assert_eq!(api.asked().len(), 3, "there is no second question about a stranger");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_server_complains_about_is_nobodys() {
    let api = FakeApi::default();
    api.turn(Mood::Complains);
    assert_eq!(reviewer(&api).review("scraper").await, Ok(Verdict::Unknown));
}

#[tokio::test(start_paused = true)]
async fn a_denial_counts_more_than_a_permission() {
    let api = FakeApi::default();
    api.turn(Mood::Contradicts);
    assert_eq!(reviewer(&api).review("scraper").await, Ok(Verdict::Forbidden));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_let_in_by_a_server_that_does_not_answer() {
    for kind in ["tokenreviews", "subjectaccessreviews"] {
        for mood in [Mood::Absent, Mood::Babbles, Mood::Forbids(kind), Mood::Silent(kind)] {
            let api = FakeApi::default();
            let reviewer = reviewer(&api);
            api.turn(mood);
            let began = Instant::now();
            assert_eq!(reviewer.review("scraper").await, Err(Unanswered), "{kind}");
            assert!(began.elapsed() <= LIMIT);
            // And nothing of it is remembered.
            api.turn(Mood::Answers);
            assert_eq!(reviewer.review("scraper").await, Ok(Verdict::Allowed), "{kind}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_verdict_is_remembered_while_it_lasts_also_without_a_server() {
    let api = FakeApi::default();
    let reviewer = reviewer(&api);
    assert_eq!(reviewer.review("scraper").await, Ok(Verdict::Allowed));
    api.turn(Mood::Absent);
    assert_eq!(reviewer.review("scraper").await, Ok(Verdict::Allowed));
    assert_eq!(api.asked().len(), 2);
    advance(Duration::from_mins(1)).await;
    assert_eq!(reviewer.review("scraper").await, Err(Unanswered));
}

#[tokio::test(start_paused = true)]
async fn a_role_that_is_bound_after_a_refusal_is_soon_seen() {
    let api = FakeApi::default();
    let reviewer = reviewer(&api);
    api.turn(Mood::Contradicts);
    assert_eq!(reviewer.review("scraper").await, Ok(Verdict::Forbidden));
    api.turn(Mood::Answers);
    assert_eq!(reviewer.review("scraper").await, Ok(Verdict::Forbidden));
    advance(Duration::from_secs(10)).await;
    assert_eq!(reviewer.review("scraper").await, Ok(Verdict::Allowed));
}

#[tokio::test(start_paused = true)]
async fn questions_are_asked_a_few_at_a_time_and_the_others_do_not_wait_for_ever() {
    let api = FakeApi::default();
    api.turn(Mood::Silent("tokenreviews"));
    let reviewer = reviewer(&api);
    let guess = |i: usize| {
        let reviewer = reviewer.clone();
        tokio::spawn(async move { reviewer.review(&format!("guess {i}")).await })
    };
    let began = Instant::now();
    let guesses: Vec<_> = (0..10 * PLACES).map(guess).collect();
    tokio::task::yield_now().await;
    sleep(LIMIT / 2).await;
    assert_eq!(api.asked().len(), PLACES);
    for guess in guesses {
        assert_eq!(guess.await.unwrap(), Err(Unanswered));
    }
    assert!(began.elapsed() <= 3 * LIMIT);
}

#[tokio::test(start_paused = true)]
async fn guessing_is_slow_whether_or_not_the_answers_are_waited_for() {
    let api = FakeApi::default();
    let reviewer = reviewer(&api);
    let guess = |i: usize| {
        let reviewer = reviewer.clone();
        tokio::spawn(async move { reviewer.review(&format!("guess {i}")).await })
    };
    for i in 0..200 {
        let impatient = guess(i);
        sleep(Duration::from_millis(10)).await;
        impatient.abort();
    }
    // Two seconds, in each of which four places are free four times.
    assert!((4..=2 * 16 + PLACES).contains(&api.asked().len()), "{}", api.asked().len());
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_with_the_same_token_share_the_answer() {
    let api = FakeApi::default();
    let reviewer = reviewer(&api);
    let scrape = |_| {
        let reviewer = reviewer.clone();
        tokio::spawn(async move { reviewer.review("scraper").await })
    };
    let scrapes: Vec<_> = (0..50).map(scrape).collect();
    for scrape in scrapes {
        assert_eq!(scrape.await.unwrap(), Ok(Verdict::Allowed));
    }
    assert!(api.asked().len() <= 2 * PLACES, "{}", api.asked().len());
}
