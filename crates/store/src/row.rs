//! Rows of a result set as structs, read by column name, for both drivers.
//!
//! `sqlx::FromRow` is derived by `sqlx-macros`, which links every driver a second time for the
//! build host. [`row!`] does the same with `macro_rules!`. It reads fields through [`Column`], so
//! that a row can hold [`Money`] and narrow integers where the database has a `BIGINT`.

use canon::{Micros, Money};
use sqlx::{ColumnIndex, Decode, Error, Row, Type};

use crate::db::number;

/// A field of a row struct that can be read from a column.
pub(crate) trait Column<'r, R: Row>: Sized {
    /// Reads the column with that name.
    fn read(row: &'r R, name: &'static str) -> Result<Self, Error>;
}

/// Types that both drivers decode themselves.
macro_rules! decoded {
    ($($type:ty),*) => {$(
        impl<'r, R: Row> Column<'r, R> for $type
        where
            &'static str: ColumnIndex<R>,
            Self: Decode<'r, R::Database> + Type<R::Database>,
        {
            fn read(row: &'r R, name: &'static str) -> Result<Self, Error> {
                row.try_get(name)
            }
        }
    )*};
}

/// Types that are a `BIGINT` in the database, each with its conversion.
macro_rules! converted {
    ($($type:ty => $convert:expr),*) => {$(
        impl<'r, R: Row> Column<'r, R> for $type
        where
            &'static str: ColumnIndex<R>,
            i64: Decode<'r, R::Database> + Type<R::Database>,
        {
            fn read(row: &'r R, name: &'static str) -> Result<Self, Error> {
                row.try_get::<i64, _>(name).and_then($convert)
            }
        }

        impl<'r, R: Row> Column<'r, R> for Option<$type>
        where
            &'static str: ColumnIndex<R>,
            i64: Decode<'r, R::Database> + Type<R::Database>,
        {
            fn read(row: &'r R, name: &'static str) -> Result<Self, Error> {
                row.try_get::<Option<i64>, _>(name)?.map($convert).transpose()
            }
        }
    )*};
}

decoded!(bool, i64, String, Vec<u8>, Option<i64>, Option<String>, Option<Vec<u8>>);
converted!(Money => |nanos| Ok(Money::from_nanos(nanos)), Micros => |micros| Ok(Micros::new(micros)));
converted!(u8 => number, u16 => number, u32 => number, u64 => number);

/// Declares a struct and reads it from rows of either driver.
///
/// A field has the name of its column unless `as "column"` says otherwise. `with field: Type`
/// behind the struct adds a field that reads its own columns from the same row.
macro_rules! row {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(as $column:literal)?),* $(,)?
        }
        $(with $nested:ident: $nested_type:ty)?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
            $($nested: $nested_type,)?
        }

        impl<'r, R> sqlx::FromRow<'r, R> for $name
        where
            R: sqlx::Row,
            $($type: $crate::row::Column<'r, R>,)*
            $($nested_type: sqlx::FromRow<'r, R>,)?
        {
            fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
                Ok(Self {
                    $($field: $crate::row::Column::read(
                        row,
                        $crate::row::column_name!($field $($column)?),
                    )?,)*
                    $($nested: sqlx::FromRow::from_row(row)?,)?
                })
            }
        }
    };
}

/// The column a field is read from.
macro_rules! column_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:literal) => {
        $column
    };
}

pub(crate) use {column_name, row};
