//! Parts of the format that no other format has.

pub(super) mod audio;
