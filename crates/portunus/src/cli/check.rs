//! `portunus check`: validates the configuration, and asks the services that it names.

use admin::{CheckState, HealthCheck};
use clap::Args;
use ledger::{Clock as _, SystemClock};
use serde_json::json;
use std::process::ExitCode;

use super::common::CommonArgs;
use super::local_checks::{service_checks, vault_file_check};
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
    config.warnings.extend(config.outbound.certificate_notice().map(str::to_owned));
    let mut warnings = config.warnings.clone();
    let mut failures = Vec::new();
    // A running gateway reads the certificates of providers at its first TLS connection.
    let mut checks = vec![admin::certificate_check(&config, SystemClock.now())];
    checks.extend(vault_file_check(&config));
    if !args.offline {
        checks.extend(service_checks(&config).await);
    }
    for HealthCheck { state, message, .. } in checks {
        match state {
            CheckState::Good => {}
            CheckState::Warning => warnings.push(message),
            CheckState::Failing => failures.push(message),
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
