//! `portunus check`: is this configuration good?

use serde_json::json;
use std::process::ExitCode;

use super::{Common, say};

pub(super) fn check(common: &Common) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    if common.json {
        say(&json!({
            "ok": true,
            "models": config.catalog.len(),
            "providers": config.providers.iter().map(|p| &p.name).collect::<Vec<_>>(),
            "warnings": config.warnings,
        })
        .to_string());
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &config.warnings {
        say(&format!("warning: {warning}"));
    }
    let names: Vec<&str> = config.providers.iter().map(|p| p.name.as_str()).collect();
    say(&format!(
        "good: {} models from {} providers ({}), listening on {}",
        config.catalog.len(),
        names.len(),
        names.join(", "),
        config.listen
    ));
    Ok(ExitCode::SUCCESS)
}
