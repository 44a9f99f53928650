//! Puts results into docs/performance.md, so that no figure in there was typed by hand: tables between two marks, and the
//! pictures beside it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::results::{Results, pictures};
use crate::table;

/// What a run of one kind replaces.
#[derive(Clone, Copy, Debug)]
pub enum Section {
    Clusters,
    Fleet,
}

impl Section {
    fn of(results: &Results) -> Self {
        if results.fleets.is_empty() { Self::Clusters } else { Self::Fleet }
    }

    fn marks(self) -> (&'static str, &'static str) {
        match self {
            Self::Clusters => ("<!-- make bench -->", "<!-- end of make bench -->"),
            Self::Fleet => ("<!-- make bench-fleet -->", "<!-- end of make bench-fleet -->"),
        }
    }
}

/// `folder`: of a run. `docs`: where performance.md is.
pub fn publish(folder: &Path, docs: &Path) -> Result<()> {
    let file = folder.join("results.json");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let results: Results = serde_json::from_str(&text).context("these results are of another version")?;
    let page = docs.join("performance.md");
    let before = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    let mut text = table::all(&results, table::Style::Markdown);
    let folder = docs.join("performance");
    fs::create_dir_all(&folder)?;
    for (name, picture) in pictures(&results) {
        fs::write(folder.join(name), picture)?;
        text += &format!("\n![{name}](performance/{name})\n");
    }
    Ok(fs::write(&page, replace(&before, Section::of(&results), &text)?)?)
}

fn replace(page: &str, section: Section, tables: &str) -> Result<String> {
    let (begin, end) = section.marks();
    let (head, rest) = page.split_once(begin).with_context(|| format!("the page has no mark {begin}"))?;
    let (_, tail) = rest.split_once(end).with_context(|| format!("the page has no mark {end}"))?;
    Ok(format!("{head}{begin}\n\n{tables}\n{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_of_its_section_is_replaced() {
        let page = "a\n<!-- make bench -->\nold\n<!-- end of make bench -->\nb\n<!-- make bench-fleet -->\nfleet\n<!-- end of make bench-fleet -->\n";
        let new = replace(page, Section::Clusters, "new").unwrap();
        assert!(new.contains("new") && !new.contains("old") && new.contains("fleet\n"));
        assert_eq!(replace(&new, Section::Clusters, "new").unwrap(), new, "again changes nothing");
        assert!(replace("no marks", Section::Fleet, "x").is_err());
    }
}
