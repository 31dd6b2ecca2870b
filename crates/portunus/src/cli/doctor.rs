//! `portunus doctor`: names every trouble of a gateway, with a remedy.
//!
//! It checks the configuration, the data folder and the services by itself. If the gateway runs, it also
//! reads the report of the gateway: with sentences from the metrics listener or with an admin key, and
//! otherwise names and states only.

use admin::{CheckState, HealthCheck};
use anyhow::Context as _;
use clap::Args;
use config::Config;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, Uri};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;
use transport::HttpClient;

use super::common::CommonArgs;
use super::local_checks::{offline_checks, service_checks};
use super::output::print_line;

/// Time that the gateway may take for its report, and the largest report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_REPORT_BYTES: usize = 1 << 20;
/// Name of the check that the gateway answers at all.
const GATEWAY: &str = "gateway";

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Address of the running gateway, such as http://127.0.0.1:8080; that of the configuration without one
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Admin key with which the running gateway tells its sentences, if it has no metrics listener
    #[arg(long, value_name = "KEY", env = "PORTUNUS_ADMIN_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Ask neither the database nor other services nor the gateway
    #[arg(long)]
    offline: bool,
}

/// A check as it is shown. One of a running gateway may have no sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ShownCheck {
    name: String,
    state: CheckState,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    hint: Option<String>,
}

impl From<HealthCheck> for ShownCheck {
    fn from(check: HealthCheck) -> Self {
        let HealthCheck { name, state, message, hint } = check;
        Self { name: name.word().to_owned(), state, message: Some(message), hint }
    }
}

pub(super) async fn run(common: &CommonArgs, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let mut checks: Vec<ShownCheck> =
        offline_checks(&config).into_iter().map(ShownCheck::from).collect();
    if !args.offline {
        let (services, report) =
            tokio::join!(service_checks(&config), gateway_report(&config, args));
        checks.extend(services.into_iter().map(ShownCheck::from));
        merge(&mut checks, report);
    }
    checks.sort_by_key(|check| std::cmp::Reverse(check.state));
    let wrong = checks.iter().filter(|check| check.state != CheckState::Good).count();
    if common.json {
        print_line(&json!({ "ok": wrong == 0, "checks": checks }).to_string());
    } else {
        for ShownCheck { name, state, message, hint } in &checks {
            let message = message.as_deref().unwrap_or_default();
            print_line(&format!("{:8} {name:13} {message}", state.word()));
            if let Some(hint) = hint {
                print_line(&format!("{:22} {hint}", ""));
            }
        }
        print_line(&match wrong {
            0 => format!("all {} checks are good", checks.len()),
            wrong => format!("{wrong} of {} checks need somebody to look", checks.len()),
        });
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Adds the report of the gateway. The worse result of two counts, and that of the gateway if they are
/// equal.
fn merge(checks: &mut Vec<ShownCheck>, report: Vec<ShownCheck>) {
    for mut told in report {
        let own = checks.iter_mut().find(|own| own.name == told.name);
        if told.message.is_none() {
            // Equally bad ones keep the sentence of this command.
            if own.as_ref().is_some_and(|own| own.state >= told.state) {
                continue;
            }
            told.message = Some("the running gateway reports it without a sentence".to_owned());
            if told.state != CheckState::Good {
                let hint = "give an admin key with --key, or set `metrics` of `[server]`";
                told.hint = Some(hint.to_owned());
            } else {
                told.message = Some("the running gateway reports nothing".to_owned());
            }
        }
        match own {
            Some(own) if own.state > told.state => {}
            Some(own) => *own = told,
            None => checks.push(told),
        }
    }
}

/// Reads the report of the running gateway. A gateway that does not answer is reported too.
async fn gateway_report(config: &Config, args: &DoctorArgs) -> Vec<ShownCheck> {
    let base = args.url.clone().unwrap_or_else(|| default_url(config));
    let base = base.trim_end_matches('/');
    let (address, key) = match (&args.url, config.metrics_address, &args.key) {
        (None, Some(metrics), _) => (format!("http://{}/readyz?verbose", local(metrics)), None),
        (_, _, Some(key)) => (format!("{base}/api/admin/health"), Some(key.as_str())),
        (_, _, None) => (format!("{base}/readyz?verbose"), None),
    };
    let reading = tokio::time::timeout(REPORT_TIMEOUT, read_report(config, &address, key));
    let why = match reading.await {
        Ok(Ok(mut report)) => {
            report.push(gateway(CheckState::Good, format!("it answers at {address}"), None));
            return report;
        }
        Ok(Err(why)) => format!("{why:#}"),
        Err(_) => "no answer in time".to_owned(),
    };
    if why.contains("refused") && args.url.is_none() {
        let message = format!("none runs at {address}");
        return vec![gateway(CheckState::Good, message, None)];
    }
    let hint = "give its address with --url, or look if the process hangs";
    let message = format!("{address} gives no report: {why}");
    vec![gateway(CheckState::Warning, message, Some(hint.to_owned()))]
}

fn gateway(state: CheckState, message: String, hint: Option<String>) -> ShownCheck {
    ShownCheck { name: GATEWAY.to_owned(), state, message: Some(message), hint }
}

async fn read_report(
    config: &Config,
    address: &str,
    key: Option<&str>,
) -> anyhow::Result<Vec<ShownCheck>> {
    let target: Uri = address.parse().context("it is not a URL")?;
    let host = target.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let host = HeaderValue::from_str(host.rsplit('@').next().unwrap_or_default())?;
    let mut request = Request::get(target).header(HOST, host);
    if let Some(key) = key {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
            .context("the key has letters that no key has")?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let client = HttpClient::network(REPORT_TIMEOUT, &config.outbound);
    let answer = crate::host::fetch(client, request.body(Vec::new())?, MAX_REPORT_BYTES).await;
    let answer = answer.map_err(|error| anyhow::anyhow!(error.0))?;
    let status = answer.status().as_u16();
    let mut body: Value = serde_json::from_slice(answer.body())
        .with_context(|| format!("status {status}, and no JSON"))?;
    let checks = body.get_mut("checks").map(Value::take);
    let checks = checks.with_context(|| format!("status {status}, and no report"))?;
    serde_json::from_value(checks).context("the report cannot be read")
}

/// Returns the address of the gateway on this machine. A certificate is for the public name, so that is
/// used with one.
fn default_url(config: &Config) -> String {
    match config.tls {
        None => format!("http://{}", local(config.listen_address)),
        Some(_) => config.public_url.clone(),
    }
}

/// Returns an address that this machine can dial.
fn local(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, state: CheckState, message: Option<&str>) -> ShownCheck {
        let message = message.map(str::to_owned);
        ShownCheck { name: name.to_owned(), state, message, hint: None }
    }

    #[test]
    fn the_worse_of_two_results_counts() {
        let mut all = vec![
            check("a", CheckState::Good, Some("own a")),
            check("b", CheckState::Warning, Some("own b")),
            check("c", CheckState::Good, Some("own c")),
            check("d", CheckState::Warning, Some("own d")),
        ];
        merge(
            &mut all,
            vec![
                check("a", CheckState::Failing, Some("told a")),
                check("b", CheckState::Good, Some("told b")),
                check("c", CheckState::Warning, None),
                check("d", CheckState::Warning, None),
                check("e", CheckState::Good, None),
            ],
        );
        let shown: Vec<_> = all.iter().map(|one| (one.name.as_str(), one.state)).collect();
        assert_eq!(
            shown,
            [
                ("a", CheckState::Failing),
                ("b", CheckState::Warning),
                ("c", CheckState::Warning),
                ("d", CheckState::Warning),
                ("e", CheckState::Good),
            ]
        );
        let texts: Vec<_> = all.iter().filter_map(|one| one.message.as_deref()).collect();
        assert_eq!(texts[..2], ["told a", "own b"]);
        assert!(texts[2].contains("without a sentence"), "{}", texts[2]);
        assert_eq!(texts[3], "own d");
        assert!(texts[4].contains("reports nothing"), "{}", texts[4]);
    }

    #[test]
    fn any_address_becomes_one_of_this_machine() {
        for (address, dialled) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.1.2.3:80", "10.1.2.3:80"),
        ] {
            assert_eq!(local(address.parse().unwrap()).to_string(), dialled);
        }
    }
}
