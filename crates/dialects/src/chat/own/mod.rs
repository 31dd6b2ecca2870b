//! Parts of the format that no other format has.

pub(super) mod audio;
pub(super) mod plain_reply;
