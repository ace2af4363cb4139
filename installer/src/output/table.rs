//! Rows as columns of equal width.
//!
//! In: rows of cells. Out: lines. Not here: what is in them.

/// The rows, each column as wide as its widest cell, the last one as it is.
#[must_use]
pub fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                let missing = width.saturating_sub(cell.chars().count());
                line.extend(std::iter::repeat_n(' ', missing + 2));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: &[&str]| cells.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>();
        let lines = columns(&[row(&["NAME", "STATE"]), row(&["mesh-controller", "up"]), row(&["ä", ""])]);
        assert_eq!(lines, ["NAME             STATE", "mesh-controller  up", "ä"]);
    }
}
