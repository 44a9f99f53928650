//! Who can reach whom. Hosts dial each other; raft keeps a connection in each direction and falls back to the other
//! one, so that its messages pass as long as one side can dial. Everything else (a joiner's questions, a forwarded
//! promotion, a client) needs the dialling direction.

use std::collections::BTreeSet;

use super::Millis;

/// etcd takes a peer that fell silent without closing its connection for connected that long.
pub(super) const READ_TIMEOUT: Millis = 5_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// `(from, to)`: `from` can not dial `to`.
    cuts: BTreeSet<(String, String)>,
    isolated: BTreeSet<String>,
}

impl Network {
    pub fn cut(&mut self, from: &str, to: &str) {
        self.cuts.insert((from.to_owned(), to.to_owned()));
    }

    pub fn heal(&mut self, from: &str, to: &str) {
        self.cuts.remove(&(from.to_owned(), to.to_owned()));
    }

    pub fn heal_all(&mut self) {
        self.cuts.clear();
        self.isolated.clear();
    }

    pub fn isolate(&mut self, host: &str) {
        self.isolated.insert(host.to_owned());
    }

    pub fn rejoin(&mut self, host: &str) {
        self.isolated.remove(host);
    }

    pub fn is_whole(&self) -> bool {
        self.cuts.is_empty() && self.isolated.is_empty()
    }

    pub fn dials(&self, from: &str, to: &str) -> bool {
        if from == to || self.is_whole() {
            return true;
        }
        !self.isolated.contains(from)
            && !self.isolated.contains(to)
            && !self.cuts.contains(&(from.to_owned(), to.to_owned()))
    }

    /// Whether raft's messages pass between the two.
    pub fn links(&self, a: &str, b: &str) -> bool {
        self.dials(a, b) || self.dials(b, a)
    }
}

/// One member's connection to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub since: Millis,
    pub heard: Millis,
}
