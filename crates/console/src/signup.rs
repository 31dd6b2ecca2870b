//! Sign-up mode, which administration stores as a setting.

pub(crate) use admin::SignUpMode;
