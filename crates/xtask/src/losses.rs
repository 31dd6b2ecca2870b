//! `cargo xtask losses`: regenerates the golden lists of losses and `docs/losses.md`.
//!
//! The tests of the translations write the files. Review the diff line by line before committing
//! it.

use anyhow::Result;

use crate::tools::{self, cargo};

/// Writes the lists and the document.
pub(crate) fn run() -> Result<()> {
    let mut command = cargo(&["test", "-p", "dialects", "--test", "laws"]);
    tools::run(command.env("BLESS", "1"))?;
    println!(
        "losses: written; look at the diff of docs/losses.md and crates/dialects/tests/golden"
    );
    Ok(())
}
