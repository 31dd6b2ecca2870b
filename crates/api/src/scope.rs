//! The scope of a key against the need of a route.

use access::keys::ApiKey;
use canon::ApiError;
use store::{KeyGrants, KeyScope};

use crate::keyed::RouteNeed;

/// Refuses a key whose scope, or part of it, lacks the right a route needs.
pub(crate) fn check_scope(key: &ApiKey, need: RouteNeed) -> Result<(), ApiError> {
    let text = || key.record.scope_text();
    let message = match (need, key.record.scope, &key.record.grants) {
        (RouteNeed::AnyKey, KeyScope::Call | KeyScope::Admin, _)
        | (RouteNeed::Read, KeyScope::Call, KeyGrants::All | KeyGrants::Read)
        | (RouteNeed::Call, KeyScope::Call, KeyGrants::All)
        | (RouteNeed::Admin(_), KeyScope::Admin, KeyGrants::All) => return Ok(()),
        (RouteNeed::Admin(part), KeyScope::Admin, grants) => match grants {
            KeyGrants::Parts(parts) if parts.contains(&part) => return Ok(()),
            KeyGrants::All | KeyGrants::Read | KeyGrants::Parts(_) => {
                format!(
                    "this key has the scope `{}`, and this takes `admin:{}`",
                    text(),
                    part.word()
                )
            }
        },
        (RouteNeed::Admin(_), KeyScope::Call, _) => format!(
            "this key has the scope `{}` and cannot administrate; create one for it with \
             `portunus keys create --scope admin`",
            text()
        ),
        (RouteNeed::Read | RouteNeed::Call, KeyScope::Call | KeyScope::Admin, _) => format!(
            "this key has the scope `{}` and cannot make calls; create one for them with \
             `portunus keys create`",
            text()
        ),
    };
    Err(crate::admin::permission_denied(message))
}
