//! `portunus simulate`: the demo models as a stand-alone provider.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

use super::output::print_line;

/// Returns the text about faults for `simulate --help`.
pub(super) fn faults_help() -> String {
    let mut text = "Faults: any request can order one\n  \
        by the header `x-simulate-fault: NAME parameter=value …`,\n  \
        by the words `[[fault: NAME parameter=value …]]` in its prompt, which pass through any gateway,\n  \
        or by the rules of the file given with --faults (TOML or JSON):\n\n    \
        [[rule]]\n    \
        path   = \"/v1/*\"              # these four are optional\n    \
        model  = \"demo-chat\"\n    \
        header = \"x-tenant: blue\"\n    \
        on     = \"connect\"            # on a connection, not on a request\n    \
        from   = 3                    # the first one it happens to\n    \
        every  = 2                    # then every second one\n    \
        times  = 5                    # so often\n    \
        fault  = \"reset-after after=3\"\n\n\
        The meter at /meter tells what this provider would bill; `tag=WORD` finds a call there.\n\n"
        .to_owned();
    for (name, takes, about) in demo::faults() {
        let takes: String = takes.iter().map(|take| format!(" {take}=…")).collect();
        text.push_str(&format!("  {name}{takes}\n      {about}\n"));
    }
    text
}

pub(super) async fn simulate(
    listen: &str,
    canned: bool,
    pace: Option<Duration>,
    faults: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let rules = match faults {
        None => demo::FaultRules::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| anyhow::anyhow!("{} cannot be read: {e}", path.display()))?;
            demo::FaultRules::parse(&text)
                .map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?
        }
    };
    let listener = TcpListener::bind(listen).await.map_err(|e| {
        anyhow::anyhow!("cannot listen on {listen}: {e}; choose another with --listen")
    })?;
    let address = listener.local_addr()?;
    let formats: Vec<&str> = dialects::all().map(|dialect| dialect.origin().as_str()).collect();
    print_line(&format!("a simulated provider speaks {} at http://{address}", formats.join(", ")));
    let pace = demo::StreamPace { pause: pace.unwrap_or_default() };
    let rules = Arc::new(rules);
    let options =
        demo::SimulatorOptions { pace, canned, rules, ..demo::SimulatorOptions::default() };
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    demo::simulate(listener, options, stop).await?;
    Ok(ExitCode::SUCCESS)
}
