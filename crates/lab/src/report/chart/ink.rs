//! Colors of charts. The plotting library only supports fixed ones; a page has two themes. Every
//! ink is therefore drawn as a placeholder color, which is later replaced with a variable of the
//! page's style sheet.

use plotters::style::RGBColor;

/// Series colors of the style sheet; further series reuse them with other shapes.
pub(crate) const SERIES_COUNT: u8 = 6;
/// Steps of the color ramp for ordered series.
pub(crate) const RAMP_COUNT: u8 = 9;

/// Prefix of all placeholders, to distinguish them from other colors.
const MARK: u8 = 0xFE;

/// Color of a line, area or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Text,
    Grid,
    Paper,
    /// One of several unordered series.
    Series(u8),
    /// One of several ordered series.
    Ramp(u8),
}

impl Ink {
    /// Returns the ink of the `index`-th of `count` lines. Few lines have distinct colors; many
    /// ordered ones get a ramp.
    pub(crate) fn of_line(index: usize, count: usize, is_ordered: bool) -> Self {
        if is_ordered && count > 2 {
            let last = usize::from(RAMP_COUNT) - 1;
            let step = (index * last + (count - 1) / 2) / (count - 1);
            return Self::Ramp(u8::try_from(step).unwrap_or(RAMP_COUNT - 1).min(RAMP_COUNT - 1));
        }
        let step = index % usize::from(SERIES_COUNT);
        Self::Series(u8::try_from(step).expect("below SERIES_COUNT"))
    }

    pub(crate) fn stand_in(self) -> RGBColor {
        let (kind, index) = match self {
            Self::Text => (0, 0),
            Self::Grid => (0, 1),
            Self::Paper => (0, 2),
            Self::Series(index) => (1, index),
            Self::Ramp(index) => (2, index),
        };
        RGBColor(MARK, kind, index)
    }

    fn of_stand_in(kind: u8, index: u8) -> Option<Self> {
        match (kind, index) {
            (0, 0) => Some(Self::Text),
            (0, 1) => Some(Self::Grid),
            (0, 2) => Some(Self::Paper),
            (1, index) if index < SERIES_COUNT => Some(Self::Series(index)),
            (2, index) if index < RAMP_COUNT => Some(Self::Ramp(index)),
            _ => None,
        }
    }

    /// Returns the value for `fill` or `stroke` in the page.
    pub(crate) fn css(self) -> String {
        match self {
            Self::Text => "var(--chart-text)".into(),
            Self::Grid => "var(--chart-grid)".into(),
            Self::Paper => "var(--paper)".into(),
            Self::Series(index) => format!("var(--series-{index})"),
            Self::Ramp(index) => format!("var(--ramp-{index})"),
        }
    }
}

/// Replaces placeholders with the style sheet's variables: `#FE0103` -> `var(--series-3)`.
pub(crate) fn replace_stand_ins(svg: &str) -> String {
    let start = format!("#{MARK:02X}");
    let mut page = String::with_capacity(svg.len());
    let mut rest = svg;
    while let Some(at) = rest.find(&start) {
        page.push_str(&rest[..at]);
        let code = rest.get(at + start.len()..at + start.len() + 4).unwrap_or_default();
        let ink = parse(code);
        let length = start.len() + ink.map_or(0, |_| code.len());
        page.push_str(&ink.map_or_else(|| start.clone(), Ink::css));
        rest = &rest[at + length..];
    }
    page.push_str(rest);
    page
}

fn parse(code: &str) -> Option<Ink> {
    let kind = u8::from_str_radix(code.get(..2)?, 16).ok()?;
    let index = u8::from_str_radix(code.get(2..)?, 16).ok()?;
    Ink::of_stand_in(kind, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ink_comes_back_as_a_variable() {
        let inks = [Ink::Text, Ink::Grid, Ink::Paper, Ink::Series(5), Ink::Ramp(8)];
        for ink in inks {
            let RGBColor(red, green, blue) = ink.stand_in();
            let svg = format!("<line stroke=\"#{red:02X}{green:02X}{blue:02X}\"/>");
            assert_eq!(replace_stand_ins(&svg), format!("<line stroke=\"{}\"/>", ink.css()));
        }
    }

    #[test]
    fn other_colors_stay() {
        for text in ["#FE", "#FE0", "#FE0909", "a #FEé", "#123456"] {
            assert_eq!(replace_stand_ins(text), text);
        }
    }

    #[test]
    fn an_ordered_ramp_uses_both_of_its_ends() {
        let inks: Vec<Ink> = (0..4).map(|index| Ink::of_line(index, 4, true)).collect();
        assert_eq!(inks, [Ink::Ramp(0), Ink::Ramp(3), Ink::Ramp(5), Ink::Ramp(8)]);
        assert_eq!(Ink::of_line(7, 8, false), Ink::Series(1));
        assert_eq!(Ink::of_line(200, 300, true), Ink::Ramp(5));
    }
}
