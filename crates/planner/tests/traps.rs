//! docs/traps.md is true: it has every trap that a test carries in its name, and says where these tests are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How often each file has tests for a trap.
type Tests = BTreeMap<String, BTreeMap<String, usize>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?.path();
        if entry.is_dir() {
            sources(&entry, found)?;
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    Ok(())
}

/// `T7` and `H31` of `fn t7_h31_a_sentence(`.
fn numbers(line: &str) -> Vec<String> {
    let line = line.trim_start();
    let Some(name) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn ")) else {
        return vec![];
    };
    let is_number = |part: &&str| {
        let digits = part.strip_prefix(['t', 'h', 'i']);
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    name.split('_').take_while(is_number).map(str::to_uppercase).collect()
}

/// `planner/healing` for `crates/planner/src/healing.rs`, `tests/clusters/healing` for `tests/tests/clusters/healing.rs`.
fn place(file: &Path) -> String {
    let path = file.strip_prefix(root()).unwrap_or(file).with_extension("");
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let parts = if parts[0] == "crates" { &parts[1..] } else { &parts[..] };
    let keeps = |(index, part): &(usize, &String)| *index != 1 || !["src", "tests"].contains(&part.as_str());
    let kept: Vec<_> = parts.iter().enumerate().filter(keeps).map(|(_, part)| part.clone()).collect();
    kept.join("/")
}

fn tests() -> std::io::Result<Tests> {
    let mut files = vec![];
    for folder in ["crates", "tests"] {
        sources(&root().join(folder), &mut files)?;
    }
    files.sort();
    let mut tests = Tests::new();
    for file in files {
        for number in fs::read_to_string(&file)?.lines().flat_map(numbers) {
            *tests.entry(number).or_default().entry(place(&file)).or_default() += 1;
        }
    }
    Ok(tests)
}

fn row(line: &str, tests: &Tests) -> String {
    let cells: Vec<_> = line.split(" | ").collect();
    let number = line.trim_start_matches("| ").split(' ').next().unwrap_or_default();
    let is_row = number.starts_with(['T', 'H', 'I']) && number[1..].parse::<u32>().is_ok();
    if !is_row || cells.len() < 2 {
        return line.to_owned();
    }
    let places = tests.get(number).into_iter().flatten();
    let places: Vec<_> = places.map(|(file, count)| format!("{file} {count}")).collect();
    format!("{} | {} | {} |", cells[0], cells[1].trim_end_matches(" |"), places.join(", "))
}

#[test]
fn the_document_has_every_trap_with_its_tests() {
    let path = root().join("docs/traps.md");
    let document = fs::read_to_string(&path).unwrap();
    let tests = tests().unwrap();
    let lines: Vec<_> = document.lines().map(|line| row(line, &tests)).collect();
    let current = lines.join("\n") + "\n";
    if std::env::var("TRAPS").is_ok_and(|wish| wish == "write") {
        fs::write(&path, &current).unwrap();
    } else {
        let stale = document.lines().zip(current.lines()).find(|(is, should)| is != should);
        assert_eq!(stale, None, "TRAPS=write cargo test --package planner --test traps");
    }
    let listed = |number: &str| document.contains(&format!("\n| {number} | "));
    let missing: Vec<_> = tests.keys().filter(|number| !listed(number)).collect();
    assert!(missing.is_empty(), "docs/traps.md has no row for {missing:?}");
    let untested: Vec<_> = current
        .lines()
        .filter(|l| ["| T", "| H", "| I"].iter().any(|kind| l.starts_with(kind)))
        .filter(|l| l.ends_with("|  |"))
        .collect();
    assert!(untested.is_empty(), "rows without a test: {untested:?}");
}
