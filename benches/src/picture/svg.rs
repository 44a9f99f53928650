//! A sheet to draw on.

use std::fmt::Write as _;

pub const INK: &str = "#1f2937";
pub const FAINT: &str = "#9ca3af";
pub const GRID: &str = "#e5e7eb";

/// Where a text stands in relation to its point.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A sheet of a fixed width, as high as needed.
pub struct Sheet {
    width: f64,
    body: String,
}

impl Sheet {
    pub fn new(width: f64) -> Self {
        Self { width, body: String::new() }
    }

    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: &str) {
        self.add(&format!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2" fill="{color}"/>"#
        ));
    }

    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), color: &str) {
        self.add(&format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}"/>"#));
    }

    pub fn path(&mut self, points: &[(f64, f64)], color: &str) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.add(&format!(r#"<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>"#));
    }

    pub fn dot(&mut self, (x, y): (f64, f64), color: &str) {
        self.add(&format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{color}"/>"#));
    }

    pub fn text(&mut self, (x, y): (f64, f64), size: u32, anchor: Anchor, color: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.add(&format!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" text-anchor="{anchor}" fill="{color}">{text}</text>"#
        ));
    }

    fn add(&mut self, element: &str) {
        // Writing to a string can not fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// The picture, with a white ground: it is also looked at on dark pages.
    pub fn finish(self, height: f64) -> String {
        let (width, body) = (self.width, self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" font-family=\"system-ui, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A round distance between the marks of an axis that reaches `most`, so that there are some four to eight of them.
pub fn tick(most: f64) -> f64 {
    if most <= 0.0 || !most.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let fits = |step: &&f64| most / (**step * power) <= 8.0;
    steps.iter().find(fits).copied().unwrap_or(10.0) * power
}

/// A number with as many digits as it deserves.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_not_break_the_picture() {
        let mut sheet = Sheet::new(100.0);
        sheet.text((1.0, 2.0), 10, Anchor::Start, INK, "a < b & \"c\"");
        let picture = sheet.finish(50.0);
        assert!(picture.contains("a &lt; b &amp; &quot;c&quot;"), "{picture}");
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn axes_have_round_marks_and_not_too_many() {
        for most in [0.3, 1.0, 7.4, 11.8, 90.0, 1000.0] {
            let count = most / tick(most);
            assert!((2.0..=8.0).contains(&count), "{most}: {count}");
        }
        assert!((tick(10.0) - 2.0).abs() < 1e-9);
        assert!((tick(0.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.126, 12.34, 1234.5].map(number), ["0", "0.13", "12.3", "1234"]);
    }
}
