//! What happens to the operator's requests to the API server on their way: the script's faults.

use planner::pass::API_LIMIT;

use super::Stage;
use crate::apiserver::Sub;
use crate::apiserver::http::{Call, Fate as Way, Hook, Silence, Verb};
use crate::apiserver::kind::EVENT;
use crate::script::{self, Fate, SECOND};
use crate::world::Order;
use crate::world::control::Admission;

/// Stands between the operator and the API server.
pub struct Fates {
    pub stage: Stage,
}

impl Hook for Fates {
    fn fate(&self, call: &Call<'_>) -> Way {
        let now = self.stage.now();
        let mut world = self.stage.world();
        if now < world.api_down_until {
            return Way::unreachable(Silence::Reset);
        }
        if matches!(call.verb, Verb::List | Verb::Watch) || call.kind == EVENT {
            return Way::pass();
        }
        let usual = world.within(1, 10);
        if call.verb.is_write() {
            let what = format!("  {:?} {} {}", call.verb, call.kind.kind, call.name.unwrap_or_default());
            world.note(|_| what);
        }
        let verb = match (call.verb, call.sub) {
            (Verb::Create, _) => Some(script::Verb::Create),
            (Verb::Patch, None) => Some(script::Verb::Patch),
            (Verb::Update | Verb::Patch, Some(Sub::Status)) => Some(script::Verb::Status),
            (Verb::Delete, _) => Some(script::Verb::Delete),
            _ => None,
        };
        if let Some(verb) = verb
            && let Admission::Refused(error) = world.admit(call.kind, verb, call.name.unwrap_or_default())
        {
            return Way::refused(error);
        }
        // The operator gives up after that.
        let limit = u64::try_from(API_LIMIT.as_millis()).unwrap_or(u64::MAX);
        match world.fate() {
            None => Way::delayed(usual),
            Some(Fate::AnswerLost) => Way::answer_lost(Silence::Hang),
            Some(Fate::RequestLost) => Way::unreachable(Silence::Hang),
            Some(Fate::Late(by)) => Way::delayed(limit + by),
            Some(Fate::Slow(by)) => Way { after: by.min(limit - 1), ..Way::delayed(usual) },
            Some(Fate::DieBefore) => {
                world.orders.push_back(Order::Crash { back: 2 * SECOND });
                Way::unreachable(Silence::Hang)
            }
            Some(Fate::DieAfter) => {
                world.orders.push_back(Order::Crash { back: 2 * SECOND });
                Way::answer_lost(Silence::Hang)
            }
        }
    }
}
