//! What the API server said no to, in one sentence for people: which object, why, and what to do about it. Events,
//! conditions and the log say it with these words; the structures behind it stay inside.

use std::fmt::Write as _;

use kube::core::Status;

/// More of somebody else's words than that is not quoted.
const QUOTED: usize = 500;
/// More fields than that are not named.
const FIELDS: usize = 3;

/// The API server answered. `what` is kind and name of the object a call was about: `PersistentVolumeClaim data-my-etcd-abcde`.
pub fn answered(what: &str, status: &Status) -> String {
    let said = quoted(&status.message);
    if let Some(sentence) = by_words(what, status, &said) {
        return sentence;
    }
    match (status.reason.as_str(), status.code) {
        ("Forbidden", _) => format!("{what} was refused: {}", own_words(&said)),
        ("Invalid", _) => {
            format!("{what} is invalid: {}; correct the spec it is made from", fields(status, &said))
        }
        ("AlreadyExists", _) => format!("{what} exists already"),
        ("Conflict", _) => format!("{what} has changed in the meantime; it is tried again"),
        ("NotFound", _) => format!("{what} does not exist"),
        ("Expired" | "Gone", _) => format!("{what} has moved on since it was read; it is read anew"),
        ("Unauthorized", _) | (_, 401) => {
            format!(
                "{what}: the API server does not accept who the operator is; check its service account and token"
            )
        }
        ("TooManyRequests", _) | (_, 429) => format!("{what}: the API server is too busy; it is tried again"),
        ("RequestEntityTooLarge", _) | (_, 413) => format!("{what} is too large for the API server"),
        ("Timeout" | "ServerTimeout" | "ServiceUnavailable", _) | (_, 503 | 504) => {
            format!(
                "{what}: the API server is not able to answer: {}; it is tried again",
                or_reason(status, &said)
            )
        }
        ("InternalError", _) | (_, 500..) => {
            let why = or_reason(status, &said);
            let why = why.strip_prefix("Internal error occurred: ").unwrap_or(&why);
            format!("{what}: the API server failed: {why}; see its log")
        }
        _ => format!("{what} was refused: {}", or_reason(status, &said)),
    }
}

/// Refusals that are told from others by their words alone.
fn by_words(what: &str, status: &Status, said: &str) -> Option<String> {
    let why = own_words(said);
    let refused = |cure: &str| Some(format!("{what} was refused: {why}; {cure}"));
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    if let Some((_, denied)) =
        said.split_once("admission webhook ").filter(|(_, rest)| rest.contains(" denied "))
    {
        let cure = "meet its policy, or change the webhook";
        return Some(format!("{what} was refused: admission webhook {denied}; {cure}"));
    }
    if let Some((_, failed)) = said.split_once("failed calling webhook ") {
        let cure = "repair the webhook, or remove its configuration";
        return Some(format!("{what}: admission webhook {failed}; {cure}"));
    }
    if said.contains("ValidatingAdmissionPolicy") {
        return refused("meet the policy, or change it");
    }
    if causes().any(|cause| cause.reason == "NamespaceTerminating")
        || said.contains("because it is being terminated")
    {
        return Some(format!("{what} was refused: its namespace is being deleted"));
    }
    if let Some(namespace) = said.strip_prefix("namespaces ").and_then(|rest| rest.strip_suffix(" not found"))
    {
        return Some(format!("{what}: namespace {} does not exist", namespace.trim_matches('"')));
    }
    if said.contains("could not find the requested resource") {
        return Some(format!("{what}: the API server does not know this kind of object; install the CRDs"));
    }
    if status.reason != "Forbidden" {
        return None;
    }
    if why.starts_with("exceeded quota") || why.starts_with("failed quota") {
        return refused("raise the quota or free some of it");
    }
    if let Some((_, denied)) = why.split_once(" cannot ").filter(|_| why.starts_with("User ")) {
        let denied = denied.replace(r#" in API group """#, "");
        return Some(format!("{what} was refused: the operator may not {denied}; check its ClusterRole"));
    }
    if why.starts_with("violates PodSecurity") {
        return refused("see the label pod-security.kubernetes.io/enforce of the namespace");
    }
    if why.starts_with("maximum ") || why.starts_with("minimum ") {
        return refused("change the resources or the LimitRange");
    }
    if let Some((_, account)) = why.split_once("error looking up service account ") {
        return Some(format!("{what} was refused: service account {account}; create it"));
    }
    None
}

/// Without the object's name, which the sentence has already: `pods "x" is forbidden: why`.
fn own_words(said: &str) -> &str {
    said.split_once(" is forbidden: ").map_or(said, |(_, why)| why)
}

/// The fields that are wrong, or else all that was said.
fn fields(status: &Status, said: &str) -> String {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let mut text = String::new();
    for cause in causes.iter().take(FIELDS) {
        let separator = if text.is_empty() { "" } else { ", and " };
        let field = if cause.field.is_empty() { String::new() } else { format!("{}: ", cause.field) };
        // Writing to a string can not fail.
        let _ = write!(text, "{separator}{field}{}", quoted(&cause.message));
    }
    if causes.len() > FIELDS {
        let _ = write!(text, ", and {} more", causes.len() - FIELDS);
    }
    if text.is_empty() {
        said.split_once(" is invalid: ").map_or(said, |(_, why)| why).to_owned()
    } else {
        text
    }
}

fn or_reason(status: &Status, said: &str) -> String {
    match (said, status.reason.as_str()) {
        ("", "") => format!("status {}", status.code),
        ("", reason) => reason.to_owned(),
        (said, _) => said.to_owned(),
    }
}

/// It did not.
pub fn silence(what: &str) -> String {
    format!("{what}: the API server did not answer in time; it is tried again")
}

/// On one line, without its full stop, and not too long.
pub fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(line.trim_end_matches('.'), QUOTED)
}

/// The beginning of a text in at most so many bytes; if something is missing, it says so.
pub fn cut(text: &str, most: usize) -> String {
    const MORE: &str = "…";
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most.saturating_sub(MORE.len())).rev().find(|&end| text.is_char_boundary(end));
    format!("{}{MORE}", &text[..end.unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(code: u16, reason: &str, message: &str, causes: &serde_json::Value) -> Status {
        let status = json!({ "status": "Failure", "code": code, "reason": reason, "message": message,
            "metadata": {}, "details": { "name": "x", "causes": causes } });
        serde_json::from_value(status).unwrap()
    }

    #[track_caller]
    fn says(code: u16, reason: &str, message: &str, sentence: &str) {
        let said = answered("Pod x", &status(code, reason, message, &json!([])));
        assert_eq!(said, sentence);
    }

    #[test]
    fn a_quota_is_named_with_its_cure() {
        let error = status(
            403,
            "Forbidden",
            r#"persistentvolumeclaims "data-c-x" is forbidden: exceeded quota: q, requested: requests.storage=1Gi, used: requests.storage=3Gi, limited: requests.storage=3Gi"#,
            &json!([]),
        );
        assert_eq!(
            answered("PersistentVolumeClaim data-c-x", &error),
            "PersistentVolumeClaim data-c-x was refused: exceeded quota: q, requested: requests.storage=1Gi, \
             used: requests.storage=3Gi, limited: requests.storage=3Gi; raise the quota or free some of it"
        );
    }

    #[test]
    fn a_missing_permission_is_the_operators_own() {
        says(
            403,
            "Forbidden",
            r#"pods is forbidden: User "system:serviceaccount:etcd:op" cannot create resource "pods" in API group "" in the namespace "ns""#,
            r#"Pod x was refused: the operator may not create resource "pods" in the namespace "ns"; check its ClusterRole"#,
        );
        says(
            403,
            "Forbidden",
            r#"poddisruptionbudgets.policy "x" is forbidden: User "op" cannot patch resource "poddisruptionbudgets" in API group "policy" in the namespace "ns""#,
            r#"Pod x was refused: the operator may not patch resource "poddisruptionbudgets" in API group "policy" in the namespace "ns"; check its ClusterRole"#,
        );
    }

    #[test]
    fn policies_are_named_with_who_can_change_them() {
        says(
            403,
            "Forbidden",
            r#"pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true"#,
            r#"Pod x was refused: violates PodSecurity "restricted:latest": runAsNonRoot != true; see the label pod-security.kubernetes.io/enforce of the namespace"#,
        );
        says(
            403,
            "Forbidden",
            r#"pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi"#,
            "Pod x was refused: maximum memory usage per Container is 1Gi, but limit is 2Gi; change the resources or the LimitRange",
        );
        says(
            403,
            "Forbidden",
            r#"pods "x" is forbidden: error looking up service account ns/etcd: serviceaccount "etcd" not found"#,
            r#"Pod x was refused: service account ns/etcd: serviceaccount "etcd" not found; create it"#,
        );
        says(
            422,
            "Invalid",
            r#"pods "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no latest"#,
            "Pod x was refused: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no latest; meet the policy, or change it",
        );
        says(
            403,
            "Forbidden",
            r#"pods "x" is forbidden: no PriorityClass with name high was found"#,
            "Pod x was refused: no PriorityClass with name high was found",
        );
    }

    #[test]
    fn a_webhook_that_denies_is_told_from_one_that_fails() {
        let denied = r#"Pod x was refused: admission webhook "v.k.io" denied the request: image not signed; meet its policy, or change the webhook"#;
        says(403, "Forbidden", r#"admission webhook "v.k.io" denied the request: image not signed"#, denied);
        says(400, "", r#"admission webhook "v.k.io" denied the request: image not signed."#, denied);
        says(
            500,
            "InternalError",
            r#"Internal error occurred: failed calling webhook "v.k.io": failed to call webhook: Post "https://v.ns.svc:443/x?timeout=10s": no endpoints available for service "v""#,
            r#"Pod x: admission webhook "v.k.io": failed to call webhook: Post "https://v.ns.svc:443/x?timeout=10s": no endpoints available for service "v"; repair the webhook, or remove its configuration"#,
        );
    }

    #[test]
    fn what_is_invalid_is_said_field_by_field() {
        let cause = |n: u32| json!({ "reason": "FieldValueInvalid", "field": format!("spec.f{n}"), "message": "Invalid value: 1: no\n" });
        let sentence = |causes| {
            answered("Pod x", &status(422, "Invalid", r#"Pod "x" is invalid: spec.f1: no"#, &causes))
        };
        assert_eq!(
            sentence(json!([cause(1), cause(2)])),
            "Pod x is invalid: spec.f1: Invalid value: 1: no, and spec.f2: Invalid value: 1: no; correct the spec it is made from"
        );
        let many = sentence(json!([cause(1), cause(2), cause(3), cause(4), cause(5)]));
        assert!(
            many.contains("spec.f3") && many.contains(", and 2 more; ") && !many.contains("spec.f4"),
            "{many}"
        );
        assert_eq!(sentence(json!([])), "Pod x is invalid: spec.f1: no; correct the spec it is made from");
    }

    #[test]
    fn what_is_missing_is_told_apart() {
        says(404, "NotFound", r#"pods "x" not found"#, "Pod x does not exist");
        says(404, "NotFound", r#"namespaces "ns" not found"#, "Pod x: namespace ns does not exist");
        says(
            404,
            "NotFound",
            "the server could not find the requested resource",
            "Pod x: the API server does not know this kind of object; install the CRDs",
        );
        let gone = r#"pods "x" is forbidden: unable to create new content in namespace ns because it is being terminated"#;
        says(403, "Forbidden", gone, "Pod x was refused: its namespace is being deleted");
    }

    #[test]
    fn what_passes_by_itself_says_so() {
        says(409, "AlreadyExists", r#"pods "x" already exists"#, "Pod x exists already");
        says(
            409,
            "Conflict",
            r#"Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the latest version and try again"#,
            "Pod x has changed in the meantime; it is tried again",
        );
        says(
            429,
            "TooManyRequests",
            "too many requests",
            "Pod x: the API server is too busy; it is tried again",
        );
        says(
            504,
            "Timeout",
            "Timeout: request did not complete within requested timeout",
            "Pod x: the API server is not able to answer: Timeout: request did not complete within requested timeout; it is tried again",
        );
    }

    #[test]
    fn a_server_that_fails_is_quoted() {
        says(
            500,
            "InternalError",
            "Internal error occurred: etcdserver: mvcc: database space exceeded",
            "Pod x: the API server failed: etcdserver: mvcc: database space exceeded; see its log",
        );
        says(502, "", "", "Pod x: the API server failed: status 502; see its log");
        says(
            401,
            "Unauthorized",
            "Unauthorized",
            "Pod x: the API server does not accept who the operator is; check its service account and token",
        );
        says(418, "Teapot", "", "Pod x was refused: Teapot");
    }

    #[test]
    fn nothing_that_is_said_is_a_dump_or_has_more_than_one_line() {
        let long = format!("<html>\n{}\n</html>", "no gateway \n".repeat(500));
        for error in [
            status(502, "", &long, &json!([])),
            status(403, "Forbidden", &long, &json!([])),
            status(422, "Invalid", &long, &json!([{ "field": "f", "message": long }])),
        ] {
            let said = answered("Pod x", &error);
            assert!(said.len() < 700 && !said.contains('\n'), "{said}");
            assert!(!said.contains("Status {") && !said.contains("Some("), "{said}");
        }
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("shorter", 6), "sho…");
        assert_eq!(cut("ééééé", 8), "éé…");
        assert!((0..12).all(|most| cut("ééééé", most).len() <= most.max(3)));
    }
}
