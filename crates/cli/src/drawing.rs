//! The pieces of an SVG that needs nothing but a browser: lines, a legend, text that cannot break out of its element.
//!
//! Not here: what is drawn (`bench/plot.rs`, `commands/backtest/plot.rs`).

use std::fmt::Write as _;

pub(crate) const BLUE: &str = "#1f6feb";
pub(crate) const ORANGE: &str = "#d1661f";
pub(crate) const GREY: &str = "#c0c7cf";

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stroke {
    pub(crate) colour: &'static str,
    pub(crate) dashed: bool,
    /// Of the line; a wide one is seen under others that go the same way.
    pub(crate) width: u8,
}

impl Stroke {
    fn dash(self) -> &'static str {
        if self.dashed { " stroke-dasharray=\"5 3\"" } else { "" }
    }
}

/// The head of a picture on white.
pub(crate) fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n",
        escaped(title)
    )
}

pub(crate) fn polyline(svg: &mut String, points: &[(f64, f64)], stroke: Stroke) {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}/>",
        points.join(" "),
        stroke.colour,
        stroke.width,
        stroke.dash()
    );
}

/// A short piece of a line and what it stands for; `x` and `y` are where the text sits.
pub(crate) fn legend(svg: &mut String, x: f64, y: f64, label: &str, stroke: Stroke) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\"{}/>\
         <text x=\"{}\" y=\"{y}\" font-size=\"10\">{}</text>",
        x + 14.0,
        y - 4.0,
        y - 4.0,
        stroke.colour,
        stroke.width,
        stroke.dash(),
        x + 18.0,
        escaped(label)
    );
}

/// Names come from users, and `<` is a letter to them.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_its_element() {
        assert_eq!(escaped("a<b>\"&'c"), "a&lt;b&gt;&quot;&amp;'c");
        assert!(open(1.0, 1.0, "</title><script>").contains("<title>&lt;/title&gt;&lt;script&gt;</title>"));
    }
}
