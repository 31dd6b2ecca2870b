//! Tests of the console in a real browser, with a real mail server and a real identity provider:
//! every journey of a person to an account and a key. Screenshots are left in `target/shots`.

mod actions;
mod activity;
mod agents;
mod alerts;
mod cdp;
mod hostile;
mod journeys;
mod mailbox;
mod office;
mod page;
mod playground;
mod stage;
mod statements;
mod teams;
mod zones;

use anyhow::{Context, Result};

use stage::BrowserStage;

/// Runs every journey. An error names the journey.
pub(crate) fn run() -> Result<()> {
    let mut stage = BrowserStage::start()?;
    for (name, journey) in journeys::ALL {
        println!("    {name}");
        journey(&mut stage).with_context(|| format!("journey: {name}"))?;
    }
    println!("pictures are in {}", stage.shots.display());
    Ok(())
}
