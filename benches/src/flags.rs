//! etcd's command line: reading and rewriting single flags of it.

/// The value of `--flag=value`.
pub fn get<'a>(line: &'a [String], flag: &str) -> Option<&'a str> {
    line.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(flag)?.strip_prefix('='))
}

/// Sets a flag where it stands, or adds it at the end.
pub fn set(line: &mut Vec<String>, flag: &str, value: &str) {
    let start = format!("--{flag}=");
    let word = format!("{start}{value}");
    match line.iter_mut().find(|word| word.starts_with(&start)) {
        Some(found) => *found = word,
        None => line.push(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_changed_in_its_place_and_told_from_longer_ones() {
        let mut line =
            ["etcd", "--initial-cluster=a=b", "--initial-cluster-state=new"].map(str::to_owned).to_vec();
        assert_eq!(get(&line, "initial-cluster"), Some("a=b"));
        set(&mut line, "initial-cluster-state", "existing");
        set(&mut line, "max-learners", "8");
        assert_eq!(
            line,
            ["etcd", "--initial-cluster=a=b", "--initial-cluster-state=existing", "--max-learners=8"]
        );
        assert_eq!(get(&line, "name"), None);
    }
}
