//! Changes that administration refused, shown in the form they came from.

use admin::AdminError;
use http::StatusCode;

use crate::form::FieldErrors;
use crate::page_error::PageError;

/// Message for a change that was based on an outdated version.
const STALE_MESSAGE: &str = "Somebody changed this meanwhile, and nothing was saved. Open the page again to see their change: saving now \
     replaces it.";

/// A refused change that the user can correct in the form.
#[derive(Clone, Debug)]
pub(crate) struct FormRefusal {
    pub(crate) status: StatusCode,
    /// Name of the invalid field in the API; empty if the refusal concerns no field.
    field: String,
    /// Message without the name of the field.
    message: String,
}

/// An error that no form can show becomes an error page.
impl TryFrom<AdminError> for FormRefusal {
    type Error = PageError;

    fn try_from(error: AdminError) -> Result<Self, PageError> {
        let refusal = |status, field, message| Ok(Self { status, field, message });
        match error {
            AdminError::Invalid { field, message } => {
                refusal(StatusCode::BAD_REQUEST, field, message)
            }
            AdminError::Stale | AdminError::Concurrent => {
                let message = STALE_MESSAGE.to_owned();
                refusal(StatusCode::PRECONDITION_FAILED, String::new(), message)
            }
            AdminError::Conflict(message) => refusal(StatusCode::CONFLICT, String::new(), message),
            error @ (AdminError::Forbidden(_)
            | AdminError::NotFound(_)
            | AdminError::Store(_)
            | AdminError::Internal(_)) => Err(error.into()),
        }
    }
}

impl FormRefusal {
    /// Maps the refusal to the form field it concerns, or to the whole form. Form fields have the
    /// names of the API; `lanes[2]` belongs to `lanes`.
    pub(crate) fn field_errors(&self, names: &[&str]) -> FieldErrors {
        let within = |name: &&str| {
            let rest = self.field.strip_prefix(*name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let name = names.iter().copied().filter(|name| !name.is_empty()).filter(within);
        let mut errors = FieldErrors::default();
        match name.max_by_key(|name| name.len()) {
            // The message is shown beside the field, so it need not repeat the field's name.
            Some(name) => errors.add(name, self.message.clone()),
            None if self.field.is_empty() => errors.add("", self.message.clone()),
            None => errors.add("", format!("`{}`: {}", self.field, self.message)),
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_shown_beside_their_field() {
        let refusal =
            |field: &str| FormRefusal::try_from(AdminError::invalid(field, "is wrong")).unwrap();
        let names = ["lanes", "price", "price.input", ""];
        for (field, beside, why) in [
            ("lanes[2]", "lanes", "is wrong"),
            ("price.input", "price.input", "is wrong"),
            ("price.output", "price", "is wrong"),
            ("lanesque", "", "`lanesque`: is wrong"),
            ("", "", "is wrong"),
        ] {
            assert_eq!(refusal(field).field_errors(&names).get(beside), Some(why), "{field}");
        }
    }

    #[test]
    fn only_errors_that_can_be_corrected_are_shown_in_the_form() {
        let status = |error: AdminError| FormRefusal::try_from(error).map(|refusal| refusal.status);
        assert_eq!(status(AdminError::Stale), Ok(StatusCode::PRECONDITION_FAILED));
        assert_eq!(status(AdminError::Concurrent), Ok(StatusCode::PRECONDITION_FAILED));
        assert_eq!(status(AdminError::Conflict(String::new())), Ok(StatusCode::CONFLICT));
        assert_eq!(status(AdminError::forbidden("")), Err(PageError::Forbidden));
        assert_eq!(status(AdminError::NotFound("model")), Err(PageError::NotFound));
    }
}
