//! Create, replace and patch: the checks in the API server's order, and what it fills in.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng as _};
use serde_json::{Value, json};

use super::{ApiError, ApiServer, Id, Kind, Millis, Sub, core, crd, meta, names, patch};

/// A clash of a generated name is tried again.
const TRIES: usize = 8;

impl ApiServer {
    pub fn create(
        &mut self,
        now: Millis,
        kind: Kind,
        namespace: &str,
        object: Value,
        rng: &mut impl Rng,
    ) -> Result<Value, ApiError> {
        let mut object = decode(kind, object)?;
        settle_namespace(kind, namespace, &mut object)?;
        if self.terminating.contains(namespace) && kind.namespaced {
            return Err(ApiError::namespace_terminating(kind, meta::name(&object), namespace));
        }
        let generated =
            meta::name(&object).is_empty().then(|| meta::text(&object, "generateName").to_owned());
        self.fill_new(now, kind, &mut object, rng);
        core::admit_new(kind, &mut object, self.addresses);
        for _ in 0..TRIES {
            if let Some(base) = generated.as_deref().filter(|base| !base.is_empty()) {
                meta::set(&mut object, "name", json!(names::generate(base, rng)));
            }
            let problems = problems_of_new(kind, &object);
            if !problems.is_empty() {
                return Err(ApiError::invalid(kind, meta::name(&object), &problems));
            }
            if meta::version(&object) != 0 {
                return Err(ApiError::version_of_new());
            }
            let id = Id::of(kind, &object);
            if !self.objects.contains_key(&id) {
                self.addresses += 1;
                let stored = self.commit(now, id, Some(object));
                return Ok(stored.map(|object| (*object).clone()).unwrap_or_default());
            }
            if generated.is_none() {
                break;
            }
        }
        Err(ApiError::already_exists(kind, meta::name(&object)))
    }

    /// The fields only the server writes.
    fn fill_new(&self, now: Millis, kind: Kind, object: &mut Value, rng: &mut impl Rng) {
        meta::set(object, "uid", json!(names::uid(rng)));
        meta::set(object, "creationTimestamp", self.timestamp(now));
        if kind.has_generation() {
            meta::set(object, "generation", json!(1));
        }
        meta::set(object, "deletionTimestamp", Value::Null);
        meta::set(object, "deletionGracePeriodSeconds", Value::Null);
        if kind.status {
            remove(object, "status");
        }
    }

    /// Replaces an object, or its subresource.
    pub fn update(
        &mut self,
        now: Millis,
        kind: Kind,
        namespace: &str,
        name: &str,
        object: Value,
        sub: Option<Sub>,
    ) -> Result<Value, ApiError> {
        if sub == Some(Sub::Scale) {
            let (old, wanted) = (self.existing(kind, namespace, name)?, meta::uid(&object));
            if !wanted.is_empty() && wanted != meta::uid(&old) {
                return Err(ApiError::other_uid(kind, name, wanted, meta::uid(&old)));
            }
            return self.update_scale(now, kind, namespace, name, &object);
        }
        let mut object = decode(kind, object)?;
        settle_namespace(kind, namespace, &mut object)?;
        check_name(name, &object)?;
        let wanted = meta::uid(&object);
        if kind.is_created_by_update() && self.peek(kind, namespace, name).is_none() {
            if !wanted.is_empty() {
                return Err(ApiError::other_uid(kind, name, wanted, ""));
            }
            meta::set(&mut object, "resourceVersion", Value::Null);
            return self.create(now, kind, namespace, object, &mut SmallRng::seed_from_u64(self.revision));
        }
        let old = self.existing(kind, namespace, name)?;
        if !wanted.is_empty() && wanted != meta::uid(&old) {
            return Err(ApiError::other_uid(kind, name, wanted, meta::uid(&old)));
        }
        self.replace(now, kind, &old, object, sub)
    }

    /// Applies a JSON merge patch to an object, or to its subresource.
    pub fn patch_merge(
        &mut self,
        now: Millis,
        kind: Kind,
        namespace: &str,
        name: &str,
        change: &Value,
        sub: Option<Sub>,
    ) -> Result<Value, ApiError> {
        if !change.is_object() {
            return Err(ApiError::bad_request("a merge patch of an object must be an object"));
        }
        if sub == Some(Sub::Scale) {
            let mut scale = self.scale(kind, namespace, name)?;
            patch::merge(&mut scale, change);
            return self.update_scale(now, kind, namespace, name, &scale);
        }
        let old = self.existing(kind, namespace, name)?;
        let mut object = (*old).clone();
        patch::merge(&mut object, change);
        let mut object = decode(kind, object)?;
        settle_namespace(kind, namespace, &mut object)?;
        check_name(name, &object)?;
        self.replace(now, kind, &old, object, sub)
    }

    pub(super) fn existing(&self, kind: Kind, namespace: &str, name: &str) -> Result<Arc<Value>, ApiError> {
        self.peek(kind, namespace, name).cloned().ok_or_else(|| ApiError::not_found(kind, name))
    }

    /// Puts a decoded object in the place of `old`. What says nothing new is no write.
    pub(super) fn replace(
        &mut self,
        now: Millis,
        kind: Kind,
        old: &Arc<Value>,
        mut object: Value,
        sub: Option<Sub>,
    ) -> Result<Value, ApiError> {
        let name = meta::name(old);
        if meta::text(&object, "resourceVersion").is_empty() {
            if !kind.may_update_blindly() {
                let problem = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
                return Err(ApiError::invalid(kind, name, &[problem.to_owned()]));
            }
            meta::copy(&mut object, old, "resourceVersion");
        }
        if meta::text(&object, "resourceVersion") != meta::text(old, "resourceVersion") {
            return Err(ApiError::modified(kind, name));
        }
        settle_parts(kind, old, &mut object, sub);
        let mut problems = settle_metadata(old, &mut object);
        if kind.has_generation() && spec_changed(old, &object) {
            meta::set(&mut object, "generation", json!(meta::generation(old) + 1));
        }
        problems.extend(problems_of_metadata(kind, &object));
        if sub.is_none() {
            problems.extend(core::problems_of_update(kind, old, &object));
        }
        problems.extend(crd::problems(kind, &object, Some(old)));
        if !problems.is_empty() {
            return Err(ApiError::invalid(kind, name, &problems));
        }
        core::admit_update(kind, old, &object)?;
        if object == **old {
            return Ok(object);
        }
        let id = Id::of(kind, old);
        // The finalizers were all that kept it. Whoever removed the last is answered with what was asked for.
        let released = meta::is_terminating(&object) && meta::grace(&object).unwrap_or_default() == 0;
        if released && meta::finalizers(&object).is_empty() {
            self.commit(now, id, None);
            return Ok(object);
        }
        let stored = self.commit(now, id, Some(object));
        Ok(stored.map(|object| (*object).clone()).unwrap_or_default())
    }

    /// Gives a Pod its node, as the scheduler does.
    pub fn bind(&mut self, now: Millis, namespace: &str, pod: &str, node: &str) -> Result<Value, ApiError> {
        let kind = super::kind::POD;
        let old = self.existing(kind, namespace, pod)?;
        let bound = old["spec"]["nodeName"].as_str().unwrap_or_default();
        if !bound.is_empty() {
            let why = format!("pod {pod} is already assigned to node \"{bound}\"");
            return Err(ApiError::conflict(kind, pod, &why));
        }
        if meta::is_terminating(&old) {
            let why = format!("pod {pod} is being deleted, cannot be assigned to a host");
            return Err(ApiError::conflict(kind, pod, &why));
        }
        let mut object = (*old).clone();
        object["spec"]["nodeName"] = json!(node);
        let stored = self.commit(now, Id::of(kind, &old), Some(object));
        Ok(stored.map(|object| (*object).clone()).unwrap_or_default())
    }
}

/// What is sent becomes what is stored: known fields only, defaults filled in.
fn decode(kind: Kind, mut object: Value) -> Result<Value, ApiError> {
    let Some(fields) = object.as_object_mut() else {
        return Err(ApiError::bad_request("an object is needed"));
    };
    for (field, ours) in [("apiVersion", kind.api_version()), ("kind", kind.kind.to_owned())] {
        let given = fields.entry(field).or_insert_with(|| json!(ours));
        if given.as_str() != Some(&ours) {
            return Err(ApiError::bad_request(format!("{field} {given} does not match the expected {ours}")));
        }
    }
    let unreadable =
        |error: serde_json::Error| ApiError::bad_request(format!("{} can not be read: {error}", kind.kind));
    meta::normalize(&mut object).map_err(unreadable)?;
    if kind.is_custom() {
        crd::decode(kind, &mut object);
        Ok(object)
    } else {
        core::decode(kind, object).map_err(unreadable)
    }
}

fn settle_namespace(kind: Kind, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    let given = meta::text(object, "namespace");
    if kind.namespaced && !given.is_empty() && given != namespace {
        let message = format!(
            "the namespace of the provided object does not match the namespace sent on the request ({given}, {namespace})"
        );
        return Err(ApiError::bad_request(message));
    }
    let namespace = if kind.namespaced { json!(namespace) } else { Value::Null };
    meta::set(object, "namespace", namespace);
    Ok(())
}

fn check_name(name: &str, object: &Value) -> Result<(), ApiError> {
    let given = meta::name(object);
    if given == name {
        return Ok(());
    }
    let message = format!("the name of the object ({given}) does not match the name on the URL ({name})");
    Err(ApiError::bad_request(message))
}

/// Each path writes its own part: the status by its subresource alone, and there nothing else.
fn settle_parts(kind: Kind, old: &Value, object: &mut Value, sub: Option<Sub>) {
    match sub {
        None if kind.status => copy(object, old, "status"),
        Some(Sub::Status) if kind.is_custom() => {
            let (status, version) =
                (object["status"].take(), meta::text(object, "resourceVersion").to_owned());
            *object = old.clone();
            meta::set(object, "resourceVersion", json!(version));
            remove(object, "status");
            if !status.is_null() {
                object["status"] = status;
            }
        }
        Some(Sub::Status) => {
            copy(object, old, "spec");
            if kind == super::kind::POD {
                meta::copy(object, old, "ownerReferences");
            }
        }
        _ => {}
    }
}

/// Metadata that updates can not touch.
fn settle_metadata(old: &Value, object: &mut Value) -> Vec<String> {
    let mut problems = vec![];
    let given = meta::uid(object);
    if !given.is_empty() && given != meta::uid(old) {
        problems.push(format!("metadata.uid: Invalid value: {given:?}: field is immutable"));
    }
    if meta::is_terminating(object) && !meta::is_terminating(old) {
        problems.push("metadata.deletionTimestamp: Invalid value: field is immutable".to_owned());
    }
    if meta::grace(object).is_some_and(|given| meta::grace(old) != Some(given)) {
        let how = "field is immutable; may only be changed via deletion";
        problems.push(format!("metadata.deletionGracePeriodSeconds: Invalid value: {how}"));
    }
    let fixed = ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in fixed {
        meta::copy(object, old, field);
    }
    let known = meta::finalizers(old);
    let new: Vec<_> = meta::finalizers(object).into_iter().filter(|f| !known.contains(f)).collect();
    if meta::is_terminating(old) && !new.is_empty() {
        problems.push(format!(
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {new:?}"
        ));
    }
    problems
}

fn problems_of_new(kind: Kind, object: &Value) -> Vec<String> {
    let mut problems = problems_of_metadata(kind, object);
    if meta::name(object).is_empty() {
        problems.push("metadata.name: Required value: name or generateName is required".to_owned());
    } else {
        problems.extend(names::problem(kind, meta::name(object)));
    }
    problems.extend(core::problems_of_new(kind, object));
    problems.extend(crd::problems(kind, object, None));
    problems
}

fn problems_of_metadata(kind: Kind, object: &Value) -> Vec<String> {
    let mut problems = vec![];
    let fine = |finalizer: &str| names::is_finalizer(kind, finalizer);
    for finalizer in meta::finalizers(object).iter().filter(|f| !fine(f)) {
        problems.push(format!("metadata.finalizers: Invalid value: {finalizer:?}"));
    }
    let owners = meta::owners(object);
    for owner in &owners {
        let fields = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
        if fields.iter().any(|field| field.is_empty()) {
            problems.push("metadata.ownerReferences: Invalid value: a field must not be empty".to_owned());
        }
    }
    if owners.iter().filter(|owner| owner.controller == Some(true)).count() > 1 {
        let one = "Only one reference can have Controller set to true";
        problems.push(format!("metadata.ownerReferences: Invalid value: {}: {one}", kind.kind));
    }
    problems
}

/// Anything but metadata and status.
fn spec_changed(old: &Value, new: &Value) -> bool {
    let fields = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        let own = fields.filter(|(name, _)| !["metadata", "status"].contains(&name.as_str()));
        own.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    fields(old) != fields(new)
}

fn copy(object: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => object[field] = value.clone(),
        None => remove(object, field),
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(field);
    }
}
