//! The DNS suffix of this Kubernetes cluster: what stands after `svc.` in the full name of a Service. Certificates will carry
//! such names. A flag says it, or the search list that the kubelet writes into every Pod's resolv.conf, or it is what nearly
//! every cluster has.

use std::fmt;
use std::path::Path;

use anyhow::ensure;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const USUAL: &str = "cluster.local";

/// The suffix, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDomain {
    pub name: String,
    pub source: Source,
}

/// Who says what the suffix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    ResolvConf,
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::ResolvConf => "resolv.conf",
            Self::Default => "default",
        })
    }
}

impl ClusterDomain {
    /// What `--cluster-domain` says, or what can be found out if it says nothing.
    pub fn find(flag: &str) -> anyhow::Result<Self> {
        Self::find_in(flag, Path::new(RESOLV_CONF))
    }

    fn find_in(flag: &str, resolv_conf: &Path) -> anyhow::Result<Self> {
        let told = without_dot(flag.trim());
        if !told.is_empty() {
            ensure!(is_domain(told), "--cluster-domain={flag}: want a DNS name such as {USUAL}");
            return Ok(Self { name: told.to_owned(), source: Source::Flag });
        }
        // A file that can not be read says nothing.
        let searched = searched(&std::fs::read_to_string(resolv_conf).unwrap_or_default());
        Ok(match searched {
            Some(name) => Self { name, source: Source::ResolvConf },
            None => Self { name: USUAL.to_owned(), source: Source::Default },
        })
    }
}

/// The rest of the first name in a search list that begins with `svc.`.
fn searched(resolv_conf: &str) -> Option<String> {
    resolv_conf.lines().find_map(|line| {
        let mut words = line.split(['#', ';']).next()?.split_whitespace();
        let list = (words.next() == Some("search")).then_some(words)?;
        let mut domains = list.filter_map(|name| without_dot(name).strip_prefix("svc."));
        domains.find(|domain| is_domain(domain)).map(str::to_owned)
    })
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(resolv_conf: &str, domain: Option<&str>) {
        assert_eq!(searched(resolv_conf).as_deref(), domain, "{resolv_conf:?}");
    }

    #[test]
    fn the_search_list_of_a_pod_says_the_domain() {
        says("search default.svc.cluster.local svc.cluster.local cluster.local\n", Some("cluster.local"));
        says("search myns.svc.cozy.local svc.cozy.local cozy.local", Some("cozy.local"));
        let internal = "search myns.svc.example.internal svc.example.internal example.internal";
        says(internal, Some("example.internal"));
        let whole = "nameserver 10.96.0.10\nsearch a.svc.k8s svc.k8s k8s\noptions ndots:5\n";
        says(whole, Some("k8s"));
    }

    #[test]
    fn comments_and_blanks_do_not_matter() {
        says("# a comment\n\n   search \t a.svc.cozy.local   svc.cozy.local # more\n", Some("cozy.local"));
        says("; search svc.wrong.local\nsearch a.svc.cozy.local svc.cozy.local;svc.x", Some("cozy.local"));
        says("search a.svc.cozy.local # svc.cozy.local", None);
        says("#search svc.cozy.local", None);
    }

    #[test]
    fn a_trailing_dot_is_not_part_of_the_domain() {
        says("search a.svc.cozy.local. svc.cozy.local. cozy.local.", Some("cozy.local"));
    }

    #[test]
    fn the_first_line_that_says_it_counts() {
        says("search example.com\nsearch svc.one.local\nsearch svc.two.local", Some("one.local"));
    }

    #[test]
    fn a_list_without_services_says_nothing() {
        for text in
            ["search example.com", "nameserver 10.96.0.10", "", "search", "search svc.", "search svc.."]
        {
            says(text, None);
        }
        says("searching svc.cluster.local", None);
        says("search svc.-wrong-.local svc.right.local", Some("right.local"));
    }

    #[test]
    fn the_flag_beats_the_file_and_the_file_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        let found = |flag| ClusterDomain::find_in(flag, &file).unwrap();
        let domain = |name: &str, source| ClusterDomain { name: name.to_owned(), source };
        assert_eq!(found(""), domain("cluster.local", Source::Default), "there is no file");
        std::fs::write(&file, "search a.svc.cozy.local svc.cozy.local").unwrap();
        assert_eq!(found(""), domain("cozy.local", Source::ResolvConf));
        assert_eq!(found("example.internal."), domain("example.internal", Source::Flag));
        std::fs::write(&file, "search example.com").unwrap();
        assert_eq!(found(" "), domain("cluster.local", Source::Default));
    }

    #[test]
    fn a_flag_that_is_no_domain_is_an_error_that_names_it() {
        for wrong in ["a b", "cluster..local", "http://cluster.local", "-x", "cluster.local:53"] {
            let error = ClusterDomain::find(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("--cluster-domain={wrong}")), "{error}");
        }
    }
}
