//! Amounts of money as administrators write them.

use canon::Money;

use crate::error::AdminError;

/// Parses an amount in USD that is not negative.
pub fn parse_amount(field: &'static str, text: &str) -> Result<Money, AdminError> {
    let money: Money = text.parse().map_err(|_| {
        AdminError::invalid(field, "write an amount in USD as text, such as \"5.00\"")
    })?;
    if money.is_negative() {
        return Err(AdminError::invalid(field, "must not be below zero"));
    }
    Ok(money)
}
