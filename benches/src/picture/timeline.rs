//! One bootstrap as a picture: a lane for each member, with the operator above and by hand below, on the same seconds.

use super::svg::{Anchor, FAINT, GRID, INK, Sheet, tick};
use crate::timeline::{PHASES, Timeline};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 930.0;
const LANE: f64 = 30.0;
/// The room a word needs.
const WORD: f64 = 50.0;
const COLORS: [&str; PHASES.len()] = ["#ef4444", "#f59e0b", "#3b82f6", "#10b981", "#8b5cf6", "#ec4899"];

pub fn timeline(lines: &[Timeline]) -> String {
    let longest = lines.iter().map(|line| line.ready).fold(0.1, f64::max);
    let x = |seconds: f64| LEFT + (RIGHT - LEFT) * seconds / longest;
    let mut sheet = Sheet::new(WIDTH);
    sheet.text((20.0, 28.0), 16, Anchor::Start, INK, "From apply to three ready members, on volumes");
    let mut y = legend(&mut sheet);
    let top = y;
    for line in lines {
        y = group(&mut sheet, line, y, &x);
    }
    let every = tick(longest);
    let mut mark = 0.0;
    while mark <= longest {
        sheet.line((x(mark), top), (x(mark), y), GRID);
        sheet.text((x(mark), y + 16.0), 11, Anchor::Middle, FAINT, &format!("{mark} s"));
        mark += every;
    }
    sheet.finish(y + 32.0)
}

fn legend(sheet: &mut Sheet) -> f64 {
    for (index, (name, ..)) in PHASES.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let (column, row) = ((index % 3) as f64, (index / 3) as f64);
        let (x, y) = (20.0 + column * 310.0, 46.0 + row * 20.0);
        sheet.rectangle((x, y), (12.0, 12.0), COLORS[index]);
        sheet.text((x + 18.0, y + 10.0), 11, Anchor::Start, INK, name);
    }
    96.0
}

fn group(sheet: &mut Sheet, line: &Timeline, top: f64, x: &impl Fn(f64) -> f64) -> f64 {
    let mut y = top + 20.0;
    sheet.text((20.0, y), 13, Anchor::Start, INK, &format!("{}: {:.2} s", line.title, line.ready));
    y += 8.0;
    for (at, states) in marks(line, x) {
        sheet.dot((at, y + 8.0), INK);
        sheet.text((at + 6.0, y + 12.0), 10, Anchor::Start, FAINT, &states.join(", "));
    }
    if !line.cluster.is_empty() {
        y += 20.0;
    }
    for member in &line.members {
        sheet.text((LEFT - 8.0, y + 15.0), 11, Anchor::End, INK, &member.name);
        for (phase, from, to) in member.phases() {
            sheet.rectangle((x(from), y + 4.0), ((x(to) - x(from)).max(1.0), LANE - 12.0), COLORS[phase]);
        }
        y += LANE;
    }
    sheet.line((x(line.ready), top + 26.0), (x(line.ready), y), INK);
    y + 12.0
}

/// What the cluster said of itself, and where; what was said in one breath stands in one place.
fn marks(line: &Timeline, x: &impl Fn(f64) -> f64) -> Vec<(f64, Vec<&'static str>)> {
    let mut marks: Vec<(f64, Vec<_>)> = Vec::new();
    for state in ["formed", "available", "3 ready"] {
        let Some(at) = line.cluster.get(state).map(|at| x(*at)) else { continue };
        match marks.last_mut() {
            Some((before, states)) if at - *before < WORD => states.push(state),
            _ => marks.push((at, vec![state])),
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::timeline::Member;

    #[test]
    fn every_phase_is_drawn_once_and_inside_the_picture() {
        let moments = [("EtcdMember: created", 0.1), ("Pod: created", 0.2), ("Pod: scheduled", 1.9)];
        let moments: BTreeMap<_, _> = moments.map(|(name, at)| (name.to_owned(), at)).into();
        let member = Member { name: "c-abcde".into(), moments };
        let line = Timeline { title: "x".into(), ready: 2.0, members: vec![member], ..Timeline::default() };
        let picture = timeline(&[line]);
        for color in &COLORS[..2] {
            assert_eq!(picture.matches(color).count(), 2, "in the legend and in the lane");
        }
        assert_eq!(picture.matches(COLORS[4]).count(), 1, "only in the legend");
        assert!(picture.contains("c-abcde"));
    }

    #[test]
    fn words_about_one_moment_do_not_stand_on_each_other() {
        let said = [("formed", 1.0), ("available", 1.01), ("3 ready", 3.0)];
        let cluster = said.map(|(state, at)| (state.to_owned(), at)).into();
        let line = Timeline { cluster, ..Timeline::default() };
        let marks = marks(&line, &|seconds| seconds * 100.0);
        assert_eq!(marks, [(100.0, vec!["formed", "available"]), (300.0, vec!["3 ready"])]);
    }
}
