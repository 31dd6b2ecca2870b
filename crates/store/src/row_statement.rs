//! Statements that write several rows. Their texts are kept, because writing one takes longer than
//! binding its values.

use std::sync::{Arc, OnceLock};

use sqlx::{AssertSqlSafe, Database, Encode, QueryBuilder, Type};

/// The texts of a statement, one for each number of rows.
pub(crate) struct RowStatement<const N: usize> {
    /// Numbers of rows in descending order, the last of them one.
    lengths: [usize; N],
    texts: [OnceLock<Arc<str>>; N],
}

impl<const N: usize> RowStatement<N> {
    pub(crate) const fn new(lengths: [usize; N]) -> Self {
        Self { lengths, texts: [const { OnceLock::new() }; N] }
    }

    /// Divides rows into chunks of these lengths, so that every statement recurs and stays prepared.
    /// Preparing a statement costs more than running it.
    pub(crate) fn chunks<'a, T>(&self, mut rows: &'a [T]) -> impl Iterator<Item = &'a [T]> {
        std::iter::from_fn(move || {
            let cut = self.lengths.iter().find_map(|length| rows.split_at_checked(*length));
            let (chunk, rest) = cut.filter(|(chunk, _)| !chunk.is_empty())?;
            rows = rest;
            Some(chunk)
        })
    }

    /// Returns the text for so many rows.
    pub(crate) fn text(
        &self,
        rows: usize,
        write: impl FnOnce() -> String,
    ) -> AssertSqlSafe<Arc<str>> {
        let known = self.lengths.iter().position(|length| *length == rows);
        AssertSqlSafe(match known.and_then(|at| self.texts.get(at)) {
            Some(text) => Arc::clone(text.get_or_init(|| write().into())),
            None => write().into(),
        })
    }
}

/// Writes a statement with a place for each value of so many rows.
pub(crate) fn with_places<D: Database>(
    start: &str,
    rows: usize,
    columns: usize,
    end: &str,
) -> String
where
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    let mut query = QueryBuilder::<D>::new(start);
    query.push_values(0..rows, |mut row, _| {
        for _ in 0..columns {
            row.push_bind(0_i64);
        }
    });
    query.push(end);
    query.into_string()
}

/// The texts of the last row. Most rows of a batch have the same texts in most columns.
#[derive(Default)]
pub(crate) struct SharedTexts {
    last: Vec<Arc<str>>,
    at: usize,
}

impl SharedTexts {
    /// Begins the next row.
    pub(crate) fn begin_row(&mut self) {
        self.at = 0;
    }

    /// Returns the text of the next column.
    pub(crate) fn next(&mut self, text: &str) -> Arc<str> {
        self.at += 1;
        match self.last.get_mut(self.at - 1) {
            Some(last) if **last == *text => Arc::clone(last),
            Some(last) => {
                *last = text.into();
                Arc::clone(last)
            }
            None => {
                let text: Arc<str> = text.into();
                self.last.push(Arc::clone(&text));
                text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_into_few_lengths_and_none_is_lost() {
        let statement = RowStatement::new([40, 6, 1]);
        for count in 0..200_usize {
            let rows: Vec<usize> = (0..count).collect();
            let lengths: Vec<usize> = statement.chunks(&rows).map(<[usize]>::len).collect();
            assert!(lengths.iter().all(|length| [40, 6, 1].contains(length)), "{lengths:?}");
            assert_eq!(statement.chunks(&rows).flatten().copied().collect::<Vec<_>>(), rows);
        }
    }

    #[test]
    fn a_text_is_written_once_and_has_a_place_for_each_value() {
        let statement = RowStatement::new([2, 1]);
        let write = || with_places::<sqlx::Postgres>("INSERT ", 2, 2, " END");
        assert_eq!(&*statement.text(2, write).0, "INSERT VALUES ($1, $2), ($3, $4) END");
        assert_eq!(&*statement.text(2, String::new).0, "INSERT VALUES ($1, $2), ($3, $4) END");
    }

    #[test]
    fn texts_are_shared_by_column() {
        let mut texts = SharedTexts::default();
        let mut row = |one: &str, two: &str| {
            texts.begin_row();
            (texts.next(one), texts.next(two))
        };
        let (first, second) = (row("a", "b"), row("a", "c"));
        assert!(Arc::ptr_eq(&first.0, &second.0));
        assert_eq!((&*first.1, &*second.1), ("b", "c"));
    }
}
