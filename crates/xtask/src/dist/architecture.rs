//! Architectures of the packages, and their names in each kind of package.

use clap::ValueEnum;

/// An architecture that packages are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Architecture {
    /// x86-64.
    #[value(name = "x86_64")]
    X86_64,
    /// arm64.
    #[value(name = "aarch64")]
    Aarch64,
}

impl Architecture {
    /// All architectures.
    pub(super) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// Returns the name of the processor, which `uname -m` prints and RPM uses.
    pub(super) const fn machine(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Returns the name of Debian and of container images.
    pub(super) const fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Returns the target of rustc.
    pub(super) const fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-musl",
            Self::Aarch64 => "aarch64-unknown-linux-musl",
        }
    }

    /// Returns the architecture of this machine.
    pub(super) fn of_this_machine() -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.machine() == std::env::consts::ARCH)
    }
}
