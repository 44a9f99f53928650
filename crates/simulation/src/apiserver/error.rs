//! What the API server says when it refuses: code, reason and message as Kubernetes words them.

use serde_json::{Value, json};

use super::Kind;

/// A refusal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// What programs look at beside the reason, such as `NamespaceTerminating`.
    pub cause: Option<&'static str>,
    /// The fields that are complained about.
    pub fields: Vec<String>,
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self { code, reason, message, cause: None, fields: vec![] }
    }

    pub(super) fn not_found(kind: Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.resource()))
    }

    pub(super) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource".into())
    }

    pub(super) fn already_exists(kind: Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.resource()))
    }

    pub(super) fn conflict(kind: Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(409, "Conflict", message)
    }

    pub(super) fn modified(kind: Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub(super) fn other_uid(kind: Kind, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(kind, name, &why)
    }

    pub(super) fn invalid(kind: Kind, name: &str, problems: &[String]) -> Self {
        let field = |problem: &String| problem.split(": ").next().unwrap_or_default().to_owned();
        let fields = problems.iter().map(field).collect();
        let problems = problems.join(", ");
        let what = if kind.group.is_empty() {
            kind.kind.to_owned()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!("{what} \"{name}\" is invalid: {problems}");
        Self { fields, ..Self::new(422, "Invalid", message) }
    }

    pub(super) fn forbidden(kind: Kind, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", kind.resource()))
    }

    pub(super) fn namespace_terminating(kind: Kind, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Self { cause: Some("NamespaceTerminating"), ..Self::forbidden(kind, name, &why) }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    pub(super) fn unsupported(message: &str) -> Self {
        Self::new(415, "UnsupportedMediaType", message.to_owned())
    }

    pub(super) fn not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message.to_owned())
    }

    pub(super) fn expired(wanted: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {wanted} ({oldest})"))
    }

    pub(super) fn version_of_new() -> Self {
        Self::new(500, "", "resourceVersion should not be set on objects to be created".into())
    }

    /// A quota says no.
    pub fn over_quota(kind: Kind, name: &str) -> Self {
        Self::forbidden(kind, name, "exceeded quota: simulation, requested: 1, used: 3, limited: 3")
    }

    /// A policy or a webhook says no.
    pub fn denied(kind: Kind, name: &str) -> Self {
        let why = "admission webhook \"policy.simulation\" denied the request";
        Self { fields: vec![], ..Self::new(422, "Invalid", format!("{why}: {} {name}", kind.resource())) }
    }

    /// Something went wrong inside the server.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message.into())
    }

    /// The server gave up waiting for its storage.
    pub fn timeout() -> Self {
        Self::new(504, "Timeout", "the server was unable to return a response in the time allotted".into())
    }

    /// As it is sent.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(cause) = self.cause {
            status["details"] = json!({ "causes": [{ "reason": cause, "message": self.message }] });
        }
        if !self.fields.is_empty() {
            let causes: Vec<_> = self.fields.iter().map(|field| json!({ "field": field })).collect();
            status["details"] = json!({ "causes": causes });
        }
        status
    }
}
