//! People and groups that an identity provider manages with SCIM (RFC 7643 and 7644).
//!
//! A provider sees the people it created itself, and those who had signed in through it and whom it created again.
//! Their accounts are those of `accounts.rs`, and the rights that their groups give are those of
//! `identity_groups.rs`. SCIM adds the names and ids that the provider uses.

mod drafts;
mod groups;
mod origin;
mod problem;
mod sign_in;
mod tokens;
mod users;

pub use drafts::{
    MAX_EMAILS, MAX_GROUP_MEMBERS, ScimEmail, ScimGroupDraft, ScimPersonName, ScimUserDraft,
};
pub use problem::{ScimErrorKind, ScimProblem};
pub use tokens::{IssuedScimToken, ScimClient};
