//! Image names, spelled out the way the kubelet and containerd spell them.

/// `app` becomes `docker.io/library/app:latest`: the name under which a Pod that says `app` looks for it.
pub fn normalise(name: &str) -> String {
    let (repository, tag) = match name.rsplit_once(':') {
        // A colon before a slash belongs to a registry's port.
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, "latest"),
    };
    let first = repository.split('/').next().unwrap_or_default();
    let has_registry =
        repository.contains('/') && (first.contains('.') || first.contains(':') || first == "localhost");
    match (has_registry, repository.contains('/')) {
        (true, _) => format!("{repository}:{tag}"),
        (false, true) => format!("docker.io/{repository}:{tag}"),
        (false, false) => format!("docker.io/library/{repository}:{tag}"),
    }
}

#[cfg(test)]
mod tests {
    use super::normalise;

    #[test]
    fn names_get_registry_and_tag() {
        for (short, full) in [
            ("app", "docker.io/library/app:latest"),
            ("app:1", "docker.io/library/app:1"),
            ("me/app:1", "docker.io/me/app:1"),
            ("quay.io/coreos/etcd:v3.6.16", "quay.io/coreos/etcd:v3.6.16"),
            ("localhost/lab/pause:1", "localhost/lab/pause:1"),
            ("registry:5000/app", "registry:5000/app:latest"),
        ] {
            assert_eq!(normalise(short), full);
        }
    }
}
