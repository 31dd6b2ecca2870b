//! `portunus check`: validates the configuration, and asks the services that it names.

use admin::{CheckState, HealthCheck};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

use super::common::CommonArgs;
use super::local_checks::service_checks;
use super::output::print_line;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Look at the file only, and ask neither the database nor other services
    #[arg(long)]
    offline: bool,
}

/// Warnings do not fail the command. A database that cannot be used does: a gateway would not start.
pub(super) async fn check(common: &CommonArgs, args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut config = common.load()?;
    // A running gateway reads them at its first TLS connection.
    if let Err(why) = config.outbound.check_certificates() {
        config.warnings.push(format!("no provider can be reached by https: {why}"));
    }
    config.warnings.extend(config.outbound.certificate_notice().map(str::to_owned));
    let mut warnings = config.warnings.clone();
    let mut failures = Vec::new();
    if !args.offline {
        for HealthCheck { state, message, .. } in service_checks(&config).await {
            match state {
                CheckState::Good => {}
                CheckState::Warning => warnings.push(message),
                CheckState::Failing => failures.push(message),
            }
        }
    }
    let is_good = failures.is_empty();
    let names: Vec<&str> = config.providers.iter().map(|p| p.name.as_str()).collect();
    let code = if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if common.json {
        print_line(
            &json!({
                "ok": is_good,
                "models": config.catalog.len(),
                "providers": names,
                "warnings": warnings,
                "errors": failures,
            })
            .to_string(),
        );
        return Ok(code);
    }
    for warning in &warnings {
        print_line(&format!("warning: {warning}"));
    }
    for failure in &failures {
        print_line(&format!("error: {failure}"));
    }
    if is_good {
        print_line(&format!(
            "good: {} models from {} providers ({}), listening on {}",
            config.catalog.len(),
            names.len(),
            names.join(", "),
            config.listen_address
        ));
    }
    Ok(code)
}
