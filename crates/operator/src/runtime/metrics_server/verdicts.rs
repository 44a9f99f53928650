//! What the API server said about tokens, remembered for a moment. A token is known by its digest: who gets to see this
//! memory learns none.

use std::collections::HashMap;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use tokio::time::Instant;

/// Scrapers come back about as often, and a right that was taken away ends within it.
const YES_LASTS: Duration = Duration::from_mins(1);
/// A role that was just bound is soon good for something.
const NO_LASTS: Duration = Duration::from_secs(10);
/// Many more than there are scrapers of one operator.
const ROOM: usize = 256;

/// What came of a look at a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its owner may read the metrics.
    Allowed,
    /// Its owner may not.
    Forbidden,
    /// It is nobody's.
    Unknown,
}

impl Verdict {
    fn lasts(self) -> Duration {
        match self {
            Self::Allowed => YES_LASTS,
            Self::Forbidden | Self::Unknown => NO_LASTS,
        }
    }
}

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub fn of(token: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }
}

/// The verdicts that still hold, as many as there is room for.
#[derive(Default)]
pub struct Verdicts {
    known: HashMap<TokenDigest, (Verdict, Instant)>,
}

impl Verdicts {
    pub fn get(&self, token: &TokenDigest) -> Option<Verdict> {
        let (verdict, ends) = self.known.get(token)?;
        (Instant::now() < *ends).then_some(*verdict)
    }

    /// Whoever tries token after token pushes out their own refusals, which end first, and not those who were let in.
    pub fn put(&mut self, token: TokenDigest, verdict: Verdict) {
        let now = Instant::now();
        self.known.retain(|_, (_, ends)| now < *ends);
        if self.known.len() >= ROOM {
            let first = self.known.iter().min_by_key(|(_, (_, ends))| *ends).map(|(token, _)| *token);
            first.and_then(|token| self.known.remove(&token));
        }
        self.known.insert(token, (verdict, now + verdict.lasts()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_yes_holds_for_a_minute_and_a_no_for_ten_seconds() {
        let mut verdicts = Verdicts::default();
        let [scraper, guest, stranger] = ["scraper", "guest", "stranger"].map(TokenDigest::of);
        verdicts.put(scraper, Verdict::Allowed);
        verdicts.put(guest, Verdict::Forbidden);
        verdicts.put(stranger, Verdict::Unknown);
        tokio::time::advance(Duration::from_secs(9)).await;
        let known = [scraper, guest, stranger].map(|token| verdicts.get(&token));
        assert_eq!(known, [Some(Verdict::Allowed), Some(Verdict::Forbidden), Some(Verdict::Unknown)]);
        tokio::time::advance(Duration::from_secs(1)).await;
        let known = [scraper, guest, stranger].map(|token| verdicts.get(&token));
        assert_eq!(known, [Some(Verdict::Allowed), None, None]);
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(verdicts.get(&scraper), None);
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_do_not_fill_the_memory_nor_push_out_who_was_let_in() {
        let mut verdicts = Verdicts::default();
        let scraper = TokenDigest::of("scraper");
        verdicts.put(scraper, Verdict::Allowed);
        for guess in 0..2 * ROOM {
            verdicts.put(TokenDigest::of(&format!("guess {guess}")), Verdict::Unknown);
        }
        assert_eq!(verdicts.known.len(), ROOM);
        assert_eq!(verdicts.get(&scraper), Some(Verdict::Allowed));
    }

    #[test]
    fn a_token_is_known_by_its_digest() {
        let hex: String = TokenDigest::of("abc").0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
