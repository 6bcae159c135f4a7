//! Plain aligned tables: UPPERCASE headers, three spaces between columns, no lines.

use super::View;

/// One column of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// Shown only with `-o wide`.
    pub(crate) wide: bool,
}

impl Column {
    pub(crate) const fn always(head: &'static str) -> Column {
        Column { head, wide: false }
    }

    pub(crate) const fn wide(head: &'static str) -> Column {
        Column { head, wide: true }
    }
}

/// Spaces between two columns. Three, as in kubectl, so that a cell with a space in it does not look like two.
const GAP: usize = 3;

/// A whole table; nothing at all without rows.
pub(crate) fn table<V: View>(items: &[V], wide: bool) -> String {
    if items.is_empty() {
        return String::new();
    }
    let shown: Vec<bool> = V::COLUMNS.iter().map(|column| wide || !column.wide).collect();
    let keep = |cells: Vec<String>| -> Vec<String> {
        cells.into_iter().zip(&shown).filter(|(_, shown)| **shown).map(|(cell, _)| cell).collect()
    };
    let header = keep(V::COLUMNS.iter().map(|column| column.head.to_owned()).collect());
    let rows: Vec<Vec<String>> = items.iter().map(|item| keep(item.cells())).collect();
    aligned(&header, &rows)
}

fn aligned(header: &[String], rows: &[Vec<String>]) -> String {
    let (lines, first) = Lines::new(header, rows);
    first + &rows.iter().map(|row| lines.line(row)).collect::<String>()
}

/// A cell stays on its line, whatever somebody put into a name or a message. An empty one is a dash, so that columns can
/// be counted.
fn plain(cell: &str) -> String {
    if cell.is_empty() {
        return "-".to_owned();
    }
    cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `Name:   demo`, a line for each pair that has a value.
pub(crate) fn describe(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(key, _)| key.len()).max().unwrap_or(0) + 1;
    pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{:width$}  {}\n", format!("{key}:"), plain(value)))
        .collect()
}

/// A table whose rows come one by one: columns keep the width they had, and a longer cell pushes the rest aside.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    widths: Vec<usize>,
}

impl Lines {
    /// The header, made to fit the rows that are known so far.
    pub(crate) fn new(header: &[String], known: &[Vec<String>]) -> (Lines, String) {
        let widths = (0..header.len())
            .map(|column| {
                let cells = known.iter().filter_map(|row| row.get(column)).chain([&header[column]]);
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let lines = Lines { widths };
        let first = lines.line(header);
        (lines, first)
    }

    pub(crate) fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&self.widths) {
            let cell = plain(cell);
            line.push_str(&format!("{cell:<width$}{:gap$}", "", gap = GAP));
        }
        format!("{}\n", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_cannot_break_out_of_its_line() {
        assert_eq!(describe(&[("Name", "a\nb\u{1b}[31m".to_owned()), ("Empty", String::new())]), "Name:   a b [31m\n");
    }

    #[test]
    fn rows_that_come_later_stand_under_the_header() {
        let strings = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let (lines, header) = Lines::new(&strings(&["NAME", "ID"]), &[strings(&["longer", "1"])]);
        assert_eq!(header, "NAME     ID\n");
        assert_eq!(lines.line(&strings(&["x", "2"])), "x        2\n");
        assert_eq!(lines.line(&strings(&["longer than that", "3"])), "longer than that   3\n");
    }
}
