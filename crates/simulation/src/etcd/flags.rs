//! An etcd process' command line, as far as membership depends on it.

/// What `--initial-cluster-state` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    New,
    Existing,
}

/// The flags of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    pub name: String,
    pub peer_url: String,
    pub client_url: String,
    pub initial_cluster: String,
    pub initial_cluster_state: ClusterState,
    pub token: String,
    pub max_learners: usize,
    /// Not a flag but the image's tag: what etcd refuses depends on it.
    pub version: (u8, u8, u8),
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            peer_url: "http://localhost:2380".to_owned(),
            client_url: "http://localhost:2379".to_owned(),
            initial_cluster: String::new(),
            initial_cluster_state: ClusterState::New,
            token: "etcd-cluster".to_owned(),
            max_learners: 1,
            version: (3, 6, 16),
        }
    }
}

impl Flags {
    /// From a Pod's rendered command line; `--flag=value` and `--flag value` both count. Flags that membership does not
    /// depend on are skipped.
    pub fn parse(command: &[String]) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut words = command.iter().skip_while(|word| !word.starts_with('-'));
        while let Some(word) = words.next() {
            let flag = word
                .strip_prefix("--")
                .or_else(|| word.strip_prefix('-'))
                .ok_or_else(|| format!("'{word}' is not a valid flag"))?;
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    (flag, words.next().cloned().ok_or_else(|| format!("flag needs an argument: -{flag}"))?)
                }
            };
            flags.set(name, value)?;
        }
        if flags.initial_cluster.is_empty() {
            flags.initial_cluster = format!("{}={}", flags.name, flags.peer_url);
        }
        Ok(flags)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "name" => self.name = value,
            "initial-advertise-peer-urls" => self.peer_url = value,
            "advertise-client-urls" => self.client_url = value,
            "initial-cluster" => self.initial_cluster = value,
            "initial-cluster-token" => self.token = value,
            "initial-cluster-state" => {
                self.initial_cluster_state = match value.as_str() {
                    "new" => ClusterState::New,
                    "existing" => ClusterState::Existing,
                    _ => return Err(format!("invalid value {value:?} for flag -initial-cluster-state")),
                }
            }
            "max-learners" | "experimental-max-learners" => {
                self.max_learners =
                    value.parse().map_err(|_| format!("invalid value {value:?} for flag -{name}"))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// `--initial-cluster` as pairs of name and peer URL.
    pub(super) fn initial_members(&self) -> Vec<(&str, &str)> {
        self.initial_cluster.split(',').filter_map(|entry| entry.trim().split_once('=')).collect()
    }

    /// Before 3.5.30 and 3.6.11 one voter that is not connected is enough to refuse every new member.
    pub(super) fn adds_only_with_all_voters(&self) -> bool {
        match self.version {
            (3, 6, patch) => patch < 11,
            (3, 5, patch) => patch < 30,
            version => version < (3, 5, 0),
        }
    }

    pub(super) fn version_text(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("{major}.{minor}.{patch}")
    }
}
