//! The API server: objects, versions, conflicts, finalizers, garbage collection and watches, as one value.
