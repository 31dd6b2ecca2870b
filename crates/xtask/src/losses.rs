//! `cargo xtask losses`: writes the golden lists of losses and `docs/losses.md` anew.
//!
//! The tests of the translations know what is lost; here they are only asked to write it down.
//! What changed is then in the diff, to be looked at line by line before it is kept.

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
