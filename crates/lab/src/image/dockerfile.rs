//! Reads `FROM scratch` Dockerfiles: what they say becomes a [`Recipe`]; whatever needs a running container
//! (`RUN`) or another image is refused with the line it stands on.

use std::collections::BTreeMap;

use thiserror::Error;

/// One `COPY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub sources: Vec<String>,
    pub target: String,
    /// Owner, by number.
    pub owner: (u64, u64),
    /// Permissions for all copied files; without it only "executable or not" is kept.
    pub mode: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    pub copies: Vec<Copy>,
    pub user: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub ports: Vec<String>,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line}: {problem}")]
pub struct Error {
    pub line: usize,
    pub problem: String,
}

impl Recipe {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut recipe = Self::default();
        let mut based = false;
        for (line, instruction) in instructions(text) {
            let fail = |problem: String| Error { line, problem };
            let (word, rest) = instruction.split_once(char::is_whitespace).unwrap_or((&instruction, ""));
            let rest = rest.trim();
            let word = word.to_ascii_uppercase();
            if word == "FROM" {
                recipe.from(rest, based).map_err(fail)?;
                based = true;
                continue;
            }
            if !based {
                return Err(fail("a Dockerfile begins with FROM scratch".into()));
            }
            recipe.apply(&word, rest).map_err(fail)?;
        }
        if !based {
            return Err(Error { line: 1, problem: "a Dockerfile begins with FROM scratch".into() });
        }
        Ok(recipe)
    }

    fn from(&self, base: &str, again: bool) -> Result<(), String> {
        match (base, again) {
            ("scratch", false) => Ok(()),
            (_, true) => Err("a second FROM: build stages need a container builder".into()),
            (other, _) => Err(format!("FROM {other}: only FROM scratch can be assembled without a registry")),
        }
    }

    fn apply(&mut self, word: &str, rest: &str) -> Result<(), String> {
        if rest.is_empty() {
            return Err(format!("{word} says nothing"));
        }
        match word {
            "COPY" => self.copies.push(copy(rest)?),
            "USER" => self.user = Some(rest.to_owned()),
            "WORKDIR" if rest.starts_with('/') => self.workdir = Some(rest.to_owned()),
            "WORKDIR" => return Err(format!("WORKDIR {rest}: give an absolute path")),
            "ENTRYPOINT" => self.entrypoint = exec_form(word, rest)?,
            "CMD" => self.cmd = exec_form(word, rest)?,
            "ENV" => self.env.extend(pairs(word, rest)?),
            "LABEL" => self.labels.extend(pairs(word, rest)?),
            "EXPOSE" => self.ports.extend(rest.split_whitespace().map(port)),
            other => {
                return Err(format!(
                    "{other} is not supported; an image of static binaries needs only COPY, USER, WORKDIR, \
                     ENTRYPOINT, CMD, ENV, LABEL and EXPOSE"
                ));
            }
        }
        Ok(())
    }
}

/// Joins continued lines and drops comments; each instruction comes with the number of its first line.
fn instructions(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        match found.last_mut() {
            Some((_, instruction)) if open => {
                instruction.push(' ');
                instruction.push_str(part);
            }
            _ => found.push((index + 1, part.to_owned())),
        }
        open = goes_on;
    }
    found
}

fn copy(rest: &str) -> Result<Copy, String> {
    let (mut owner, mut mode) = ((0, 0), None);
    let mut paths = Vec::new();
    for word in rest.split_whitespace() {
        match word.split_once('=') {
            Some(("--chown", value)) => owner = numeric_owner(value)?,
            Some(("--chmod", value)) => {
                let bits =
                    u32::from_str_radix(value, 8).map_err(|_| format!("--chmod={value}: give octal bits"))?;
                mode = Some(bits);
            }
            _ if word.starts_with("--") => return Err(format!("COPY {word} is not supported")),
            _ if word.starts_with('[') => return Err("COPY in JSON form is not supported".into()),
            _ if word.contains(['*', '?']) => return Err(format!("COPY {word}: name the files one by one")),
            _ => paths.push(word.to_owned()),
        }
    }
    let target = paths.pop().unwrap_or_default();
    if paths.is_empty() {
        return Err("COPY needs a source and a target".into());
    }
    if !target.starts_with('/') {
        return Err(format!("COPY to {target}: give an absolute target"));
    }
    if paths.len() > 1 && !target.ends_with('/') {
        return Err(format!("COPY of several files: the target {target} must end with a slash"));
    }
    Ok(Copy { sources: paths, target, owner, mode })
}

fn numeric_owner(value: &str) -> Result<(u64, u64), String> {
    let (user, group) = value.split_once(':').unwrap_or((value, value));
    match (user.parse(), group.parse()) {
        (Ok(user), Ok(group)) => Ok((user, group)),
        _ => Err(format!("--chown={value}: an image from scratch knows no names, give numbers")),
    }
}

/// The shell form needs a shell, which an image from scratch does not have.
fn exec_form(word: &str, rest: &str) -> Result<Vec<String>, String> {
    serde_json::from_str(rest).map_err(|_| {
        format!("{word} {rest}: without a shell only the form [\"program\", \"argument\"] works")
    })
}

fn pairs(word: &str, rest: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for item in split_quoted(rest) {
        match item.split_once('=') {
            Some((key, value)) if !key.is_empty() => found.push((key.to_owned(), value.to_owned())),
            _ => return Err(format!("{word} {rest}: write KEY=VALUE")),
        }
    }
    Ok(found)
}

/// Splits at blanks outside of double quotes, which are taken away.
fn split_quoted(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => words.push(String::new()),
            c => {
                if let Some(word) = words.last_mut() {
                    word.push(c);
                }
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn port(word: &str) -> String {
    if word.contains('/') { word.to_owned() } else { format!("{word}/tcp") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_recipe() {
        let recipe = Recipe::parse(
            "# comment\nFROM scratch\nLABEL org.opencontainers.image.title=\"etcd operator\" a=b\n\
             COPY --chown=65532:65532 --chmod=0755 bin/operator \\\n  /operator\nENV LANG=C\nWORKDIR /\nEXPOSE 8080 53/udp\n\
             USER 65532:65532\nENTRYPOINT [\"/operator\"]\nCMD [\"--help\"]\n",
        )
        .unwrap();
        let copy = &recipe.copies[0];
        assert_eq!(copy.sources, ["bin/operator"]);
        assert_eq!((copy.target.as_str(), copy.owner, copy.mode), ("/operator", (65532, 65532), Some(0o755)));
        assert_eq!(recipe.labels["org.opencontainers.image.title"], "etcd operator");
        assert_eq!(recipe.labels["a"], "b");
        assert_eq!(recipe.ports, ["8080/tcp", "53/udp"]);
        assert_eq!(recipe.entrypoint, ["/operator"]);
        assert_eq!(recipe.cmd, ["--help"]);
        assert_eq!(recipe.user.as_deref(), Some("65532:65532"));
    }

    #[test]
    fn what_needs_a_builder_is_refused_with_its_line() {
        for (text, line, words) in [
            ("FROM scratch\n\nRUN make", 3, "RUN is not supported"),
            ("FROM debian", 1, "only FROM scratch"),
            ("FROM scratch\nFROM scratch", 2, "second FROM"),
            ("COPY a /a", 1, "begins with FROM"),
            ("", 1, "begins with FROM"),
            ("FROM scratch\nENTRYPOINT /app", 2, "without a shell"),
            ("FROM scratch\nCOPY a", 2, "a source and a target"),
            ("FROM scratch\nCOPY a b /c", 2, "must end with a slash"),
            ("FROM scratch\nCOPY --from=x a /a", 2, "--from=x is not supported"),
            ("FROM scratch\nCOPY --chown=app a /a", 2, "give numbers"),
            ("FROM scratch\nCOPY *.so /lib/", 2, "one by one"),
        ] {
            let error = Recipe::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.problem.contains(words), "{text}: {error}");
        }
    }
}
