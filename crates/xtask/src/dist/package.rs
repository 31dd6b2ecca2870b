//! Definitions that all kinds of packages share.

use std::collections::BTreeMap;

use super::architecture::Architecture;

/// Version of the packages.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compression of packages, from 1 to 9.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackageLevel(pub(crate) u32);

/// Packages of one architecture in the making.
pub(super) struct PackageJob<'a> {
    pub(super) architecture: Architecture,
    /// Time of every file.
    pub(super) epoch: u64,
    /// Compression.
    pub(super) level: u32,
    /// The program.
    pub(super) binary: &'a [u8],
}

/// Files by their name.
pub(crate) type PackageFiles = BTreeMap<String, Vec<u8>>;
