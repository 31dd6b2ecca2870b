//! `portunus agents`: prints the settings with which coding agents use this gateway.

use console::{AgentSettings, agent_settings};
use serde_json::json;
use std::process::ExitCode;

use super::common::CommonArgs;
use super::output::print_line;

pub(super) fn print(
    common: &CommonArgs,
    agent: Option<&str>,
    key: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let mut all = agent_settings(&config.public_url, &config.catalog, key);
    if let Some(word) = agent {
        let words: Vec<&str> = all.iter().map(|one| one.word).collect();
        let words = words.join(", ");
        all.retain(|one| one.word == word);
        anyhow::ensure!(!all.is_empty(), "there is no agent `{word}`; known are {words}");
    }
    for AgentSettings { agent, word, steps } in all {
        if common.json {
            let steps = steps.iter().map(|(place, text)| json!({ "place": place, "text": text }));
            let steps: Vec<_> = steps.collect();
            print_line(&json!({ "agent": word, "steps": steps }).to_string());
            continue;
        }
        print_line(&format!("## {agent}"));
        for (place, text) in steps {
            print_line(&format!("\n# {place}\n{text}"));
        }
        print_line("");
    }
    Ok(ExitCode::SUCCESS)
}
