//! What came of a call to the API server, in one sentence for people. What it answered is put into words by the planner; here
//! is what goes wrong on the way.

use kube::runtime::watcher;
use planner::sentence::{answered, quoted};

/// `what` is kind and name of the object a call was about: `PersistentVolumeClaim data-my-etcd-abcde`.
pub fn refusal(what: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => answered(what, status),
        other => format!("{what}: {}", without_answer(other)),
    }
}

/// Why a watch was interrupted.
pub fn interruption(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => refusal("the list", error),
        watcher::Error::WatchError(status) => answered("the list", status),
        watcher::Error::NoResourceVersion => "the API server sent an object without a version".to_owned(),
    }
}

/// There was no answer, or none that can be read.
pub fn without_answer(error: &kube::Error) -> String {
    match error {
        kube::Error::SerdeError(error) => {
            format!("the answer of the API server can not be read: {}", quoted(&error.to_string()))
        }
        kube::Error::Auth(error) => {
            format!("the operator's credentials can not be used: {}", quoted(&error.to_string()))
        }
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
            // What went wrong first is what says most: "connection refused", not "client error".
            let mut cause: &dyn std::error::Error = error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            format!("the API server can not be reached: {}; it is tried again", quoted(&cause.to_string()))
        }
        other => quoted(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_can_not_be_reached_is_told_by_the_first_cause() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "Connection refused");
        let sentence = "Pod x: the API server can not be reached: Connection refused; it is tried again";
        assert_eq!(refusal("Pod x", &kube::Error::Service(Box::new(refused))), sentence);
    }
}
