//! Small serde helpers: on the wire an empty optional value is an absent one.

use serde::{Deserialize, Deserializer};

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

pub(crate) fn is_zero(value: &i32) -> bool {
    *value == 0
}

/// Go writers may leave `""` where they mean "not set".
pub(crate) fn empty_as_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|s| !s.is_empty()))
}
