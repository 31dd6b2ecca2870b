//! Pages of alerts.

use std::fmt;
use std::str::FromStr;

use canon::Micros;

use crate::alert_view::AlertView;
use crate::error::AdminError;

/// Position in the list of alerts: time and id of one, written `time_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertCursor {
    pub(crate) at: Micros,
    pub(crate) id: String,
}

impl fmt::Display for AlertCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.at.get(), self.id)
    }
}

impl FromStr for AlertCursor {
    type Err = AdminError;

    fn from_str(text: &str) -> Result<Self, AdminError> {
        let parts = text.split_once('_').and_then(|(at, id)| Some((at.parse().ok()?, id)));
        let cursor = parts.map(|(at, id)| Self { at: Micros::new(at), id: id.to_owned() });
        cursor.ok_or_else(|| AdminError::invalid("before", "write the `next` of another answer"))
    }
}

/// Selection of alerts; `None` is no condition.
#[derive(Clone, Debug, Default)]
pub struct AlertQuery {
    /// Of this account or team.
    pub account_id: Option<String>,
    /// Older than this position.
    pub before: Option<AlertCursor>,
}

/// A page of alerts, the newest first.
#[derive(Clone, Debug)]
pub struct AlertPage {
    /// The alerts.
    pub alerts: Vec<AlertView>,
    /// The position of the next page, if there is one.
    pub next: Option<AlertCursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let cursor = AlertCursor { at: Micros::new(17), id: "a_b".to_owned() };
        assert_eq!(cursor.to_string().parse::<AlertCursor>().unwrap(), cursor);
        for wrong in ["", "17", "_a", "x_a", "1.5_a"] {
            assert!(wrong.parse::<AlertCursor>().is_err(), "{wrong}");
        }
    }
}
