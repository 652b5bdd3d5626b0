//! Tables, as plain text and in Markdown.

use std::fmt;

/// Rows under headings. The first column is left-aligned, the others are right-aligned.
pub(crate) struct Table {
    /// The first row has the headings.
    rows: Vec<Vec<String>>,
    left: Vec<usize>,
    /// The titles, each with the index of the row that it precedes.
    titles: Vec<(usize, String)>,
}

impl Table {
    pub(crate) fn new<C: Into<String>>(headings: impl IntoIterator<Item = C>) -> Self {
        let mut table = Self { rows: Vec::new(), left: vec![0], titles: Vec::new() };
        table.row(headings);
        table
    }

    pub(crate) fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

/// Features that only the tables of the bench use.
#[cfg(feature = "driver")]
impl Table {
    /// Left-aligns these columns, and right-aligns all others.
    pub(crate) fn left(mut self, columns: &[usize]) -> Self {
        self.left = columns.to_vec();
        self
    }

    /// Adds a title above the next row, after an empty line, unless the last title is the same. Markdown
    /// shows no titles.
    pub(crate) fn title(&mut self, text: &str) {
        if self.titles.last().is_none_or(|(_, last)| last != text) {
            self.titles.push((self.rows.len(), text.to_owned()));
        }
    }

    pub(crate) fn markdown(&self) -> String {
        let rule = |column| if self.left.contains(&column) { "---" } else { "---:" };
        let rules: Vec<&str> = (0..self.rows[0].len()).map(rule).collect();
        let lines = self.rows.iter().map(|cells| format!("| {} |\n", cells.join(" | ")));
        let mut lines: Vec<String> = lines.collect();
        lines.insert(1, format!("|{}|\n", rules.join("|")));
        lines.concat()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            for (_, title) in self.titles.iter().filter(|(before, _)| *before == number) {
                writeln!(f, "\n{title}")?;
            }
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, &width))| match self.left.contains(&column) {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["suite", "passed"]);
        table.row(["a", "7"]);
        table.row(["longer", "12"]);
        assert_eq!(table.to_string(), "suite   passed\na            7\nlonger      12\n");
    }

    #[cfg(feature = "driver")]
    #[test]
    fn titles_are_for_terminals_and_alignment_for_both() {
        let mut table = Table::new(["suite", "passed", "why"]).left(&[0, 2]);
        table.title("a group");
        table.row(["a", "7", "x"]);
        let text = "suite  passed  why\n\na group\na           7  x\n";
        assert_eq!(table.to_string(), text);
        let markdown = "| suite | passed | why |\n|---|---:|---|\n| a | 7 | x |\n";
        assert_eq!(table.markdown(), markdown);
    }
}
