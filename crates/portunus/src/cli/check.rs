//! `portunus check`: validates the configuration.

use serde_json::json;
use std::process::ExitCode;

use super::common::{CommonArgs, print_line};

pub(super) fn check(common: &CommonArgs) -> anyhow::Result<ExitCode> {
    let mut config = common.load()?;
    // A running gateway reads them at its first TLS connection.
    if let Err(why) = config.outbound.check_certificates() {
        config.warnings.push(format!("no provider can be reached by https: {why}"));
    }
    if common.json {
        print_line(
            &json!({
                "ok": true,
                "models": config.catalog.len(),
                "providers": config.providers.iter().map(|p| &p.name).collect::<Vec<_>>(),
                "warnings": config.warnings,
            })
            .to_string(),
        );
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &config.warnings {
        print_line(&format!("warning: {warning}"));
    }
    let names: Vec<&str> = config.providers.iter().map(|p| p.name.as_str()).collect();
    print_line(&format!(
        "good: {} models from {} providers ({}), listening on {}",
        config.catalog.len(),
        names.len(),
        names.join(", "),
        config.listen_address
    ));
    Ok(ExitCode::SUCCESS)
}
