//! Timeouts, and their inheritance by providers and models.

use std::time::Duration;
use upstream::Timeouts;

use crate::error::FieldError;
use crate::raw::RawTimeouts;
use crate::units::parse_duration;

/// Upper bound of a timeout, to catch a typing error.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);

/// Timeouts of calls for which the configuration sets none.
pub(super) const DEFAULT_TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(5),
    first_byte: Duration::from_secs(60),
    gap: Duration::from_secs(60),
    total: Duration::from_secs(600),
};

/// Returns the configured times, and the inherited ones for the rest.
pub(super) fn overlay(
    above: Timeouts,
    raw: &RawTimeouts,
    path: &str,
) -> Result<Timeouts, FieldError> {
    let pick = |name: &str, text: &Option<String>, above: Duration| match text {
        None => Ok(above),
        Some(text) => match parse_duration(text) {
            Ok(time) if time > MAX_TIMEOUT => Err(FieldError::new(
                format_args!("{path}.{name}"),
                format_args!("must be at most {} days", MAX_TIMEOUT.as_secs() / 86_400),
            )),
            Ok(time) if !time.is_zero() => Ok(time),
            Ok(_) => {
                Err(FieldError::new(format_args!("{path}.{name}"), "must be longer than zero"))
            }
            Err(why) => Err(FieldError::new(format_args!("{path}.{name}"), why)),
        },
    };
    Ok(Timeouts {
        connect: pick("connect", &raw.connect, above.connect)?,
        first_byte: pick("first_byte", &raw.first_byte, above.first_byte)?,
        gap: pick("gap", &raw.gap, above.gap)?,
        total: pick("total", &raw.total, above.total)?,
    })
}
