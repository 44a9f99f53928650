//! Deliberately broken operators. Each breaks one rule that somebody once broke for real; the simulation has to notice
//! every one of them, or it proves nothing about the operator that is not broken.

use planner::{Action, ClusterView, Plan};

use crate::planner_loop::Call;

/// One way to be broken.
pub struct Mutation {
    pub name: &'static str,
    /// The trap it falls into.
    pub trap: &'static str,
    /// What it believes instead of what it saw.
    pub before: fn(&mut ClusterView),
    /// What it plans instead of what is right.
    pub after: fn(&ClusterView, &mut Plan),
    /// What it does instead of what it planned.
    pub call: fn(&ClusterView, &Action, Call) -> Call,
    /// Takes no live look before it destroys.
    pub blind: bool,
    /// Works with an old list when it has no new one.
    pub keeps_list: bool,
}

/// The operator as it is.
pub static NONE: Mutation = Mutation::new("none", "");

impl Mutation {
    const fn new(name: &'static str, trap: &'static str) -> Self {
        Self {
            name,
            trap,
            before: |_| {},
            after: |_, _| {},
            call: |_, _, call| call,
            blind: false,
            keeps_list: false,
        }
    }
}

/// Every broken operator.
pub fn all() -> &'static [Mutation] {
    &[]
}
