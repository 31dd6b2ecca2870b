//! Channels of One API and New API, which become providers and models of the configuration.

use catalog::{AuthScheme, ModelDirectory};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::channel_kinds::{ChannelKind, ChannelProgram};
use super::litellm_notes::listed;
use super::one_api::SourceOptions;
use super::providers::toml_quoted;
use super::source_database::SourceDatabase;
use super::source_row::SourceRow;

const CHANNEL_COLUMNS: [&str; 20] = [
    "id",
    "type",
    "key",
    "status",
    "name",
    "weight",
    "base_url",
    "models",
    "group",
    "model_mapping",
    "priority",
    "other",
    "channel_info",
    "status_code_mapping",
    "param_override",
    "header_override",
    "setting",
    "system_prompt",
    "proxy",
    "openai_organization",
];
/// State of a channel in use.
const ENABLED: i64 = 1;
/// Dollars per million tokens at a ratio of one.
const DOLLARS_PER_RATIO: f64 = 2.0;

/// A secret that a provider refers to.
pub(super) struct ChannelSecret {
    /// Name of the file, and in capitals of the environment variable.
    pub(super) name: String,
    pub(super) text: String,
}

/// The configuration made of channels.
#[derive(Default)]
pub(super) struct ChannelConfig {
    pub(super) text: String,
    pub(super) secrets: Vec<ChannelSecret>,
    pub(super) notes: Vec<String>,
    /// Names of the providers and models.
    pub(super) providers: Vec<String>,
    pub(super) models: Vec<String>,
}

/// Place of the secrets of providers.
#[derive(Clone, Copy)]
pub(super) enum SecretPlace<'a> {
    /// Environment variables that the operator sets.
    Environment,
    /// Files in this folder.
    Folder(&'a str),
}

impl SecretPlace<'_> {
    fn reference(self, name: &str) -> String {
        match self {
            Self::Environment => format!("{{ env = {} }}", toml_quoted(&variable_name(name))),
            Self::Folder(folder) => {
                format!("{{ file = {} }}", toml_quoted(&format!("{folder}/{name}")))
            }
        }
    }
}

/// Returns the environment variable of a secret.
fn variable_name(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    format!("CHANNEL_{}", name.chars().map(plain).collect::<String>().to_ascii_uppercase())
}

/// A lane of a model.
struct ChannelLane {
    name: String,
    priority: i64,
    weight: i64,
}

/// Reads the channels and writes them as configuration.
pub(super) async fn read(
    database: &mut SourceDatabase,
    program: ChannelProgram,
    options: &SourceOptions,
    place: SecretPlace<'_>,
) -> anyhow::Result<ChannelConfig> {
    let rows = database.rows("channels", &CHANNEL_COLUMNS).await?.unwrap_or_default();
    let mut config = ChannelConfig::default();
    let mut lanes: BTreeMap<String, Vec<ChannelLane>> = BTreeMap::new();
    for row in &rows {
        let name = row.text("name").or(row.text("id")).unwrap_or_default();
        if let Err(why) = add_channel(row, &name, program, place, &mut config, &mut lanes) {
            config.notes.push(format!("channel `{name}`: left out: {why}"));
        }
    }
    write_models(lanes, options, &mut config);
    match place {
        SecretPlace::Folder(_) => {}
        SecretPlace::Environment => {
            let names = config.secrets.iter().map(|secret| variable_name(&secret.name));
            if let Some(list) = listed(&names.collect::<Vec<_>>()) {
                config.notes.push(format!(
                    "the keys of channels are not copied: export {list}, or repeat with --secrets FOLDER, which \
                     writes each to a file of its own"
                ));
            }
        }
    }
    Ok(config)
}

fn add_channel(
    row: &SourceRow,
    name: &str,
    program: ChannelProgram,
    place: SecretPlace<'_>,
    config: &mut ChannelConfig,
    lanes: &mut BTreeMap<String, Vec<ChannelLane>>,
) -> Result<(), String> {
    let number = row.number("type").unwrap_or_default();
    if row.number("status").unwrap_or(ENABLED) != ENABLED {
        return Err("it is disabled".to_owned());
    }
    let ChannelKind { like, base } = ChannelKind::find(program, number)
        .ok_or_else(|| format!("the channel type {number} has no counterpart"))?;
    let own_base = row.text("base_url").map(|base| base.trim_end_matches('/').to_owned());
    let elsewhere = own_base.as_deref().is_some_and(|base| !base.contains("api.openai.com"));
    let like = if like == "openai" && elsewhere { "compatible" } else { like };
    let known = ModelDirectory::embedded().provider(like);
    let known = known.ok_or_else(|| format!("the directory has no provider `{like}`"))?;
    let header = match &known.auth {
        AuthScheme::Bearer | AuthScheme::None => None,
        AuthScheme::Header(header) => Some(header.clone()),
        AuthScheme::Google | AuthScheme::SigV4(_) => {
            return Err(format!(
                "credentials of `{like}` must be configured by hand, see docs/providers.md"
            ));
        }
    };
    let base = own_base.or(base.map(str::to_owned));
    if like == "compatible" && base.is_none() {
        return Err("it has no address".to_owned());
    }
    let keys: Vec<String> = match row.object("channel_info").get("is_multi_key") {
        Some(Value::Bool(true)) => {
            row.text("key").unwrap_or_default().lines().map(|key| key.trim().to_owned()).collect()
        }
        _ => row.text("key").into_iter().collect(),
    };
    let keys: Vec<String> = keys.into_iter().filter(|key| !key.is_empty()).collect();
    if keys.is_empty() && known.auth != AuthScheme::None {
        return Err("it has no key".to_owned());
    }
    for field in [
        "status_code_mapping",
        "param_override",
        "header_override",
        "setting",
        "system_prompt",
        "proxy",
        "openai_organization",
    ] {
        if row.is_set(field) {
            config.notes.push(format!("channel `{name}`: {field} is not carried"));
        }
    }
    let groups = row.list("group").into_iter().filter(|group| group != "default");
    if let Some(groups) = listed(&groups.collect::<Vec<_>>()) {
        config.notes.push(format!(
            "channel `{name}`: its groups are not carried, it serves all keys: {groups}"
        ));
    }
    let mapping = row.object("model_mapping");
    // A server of one's own may need no key.
    let keys: Vec<Option<String>> = match keys.is_empty() {
        true => vec![None],
        false => keys.into_iter().map(Some).collect(),
    };
    for key in keys {
        let provider = provider_name(name, &config.providers);
        let _ = writeln!(config.text, "[providers.{}]\nlike = \"{like}\"", toml_quoted(&provider));
        match &base {
            Some(base) if like == "azure" => {
                let _ = writeln!(config.text, "fill = {{ endpoint = {} }}", toml_quoted(base));
            }
            Some(base) => {
                let _ = writeln!(config.text, "base = {}", toml_quoted(base));
            }
            None => {}
        }
        match key {
            Some(key) => {
                let reference = place.reference(&provider);
                let auth = match &header {
                    Some(header) => {
                        format!("{{ header = {}, value = {reference} }}", toml_quoted(header))
                    }
                    None => format!("{{ bearer = {reference} }}"),
                };
                let _ = writeln!(config.text, "auth = {auth}");
                config.secrets.push(ChannelSecret { name: provider.clone(), text: key });
            }
            None => config.text.push_str("auth = \"none\"\n"),
        }
        config.text.push('\n');
        for model in row.list("models") {
            let upstream = mapping.get(&model).and_then(Value::as_str).unwrap_or(&model);
            lanes.entry(model.clone()).or_default().push(ChannelLane {
                name: format!("{provider}/{upstream}"),
                priority: row.number("priority").unwrap_or_default(),
                weight: row.number("weight").unwrap_or_default(),
            });
        }
        config.providers.push(provider);
    }
    Ok(())
}

/// Returns a name of a provider that is not taken.
fn provider_name(name: &str, taken: &[String]) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let plain: String = name.chars().map(plain).collect::<String>().to_ascii_lowercase();
    let plain = plain.trim_matches('-').chars().take(40).collect::<String>();
    let plain = if plain.is_empty() { "channel".to_owned() } else { plain };
    let is_free = |name: &String| !taken.contains(name);
    let numbered = (2_u32..).map(|number| format!("{plain}-{number}"));
    std::iter::once(plain.clone()).chain(numbered).find(is_free).unwrap_or(plain)
}

/// Writes the models with their lanes, the preferred ones first.
fn write_models(
    lanes: BTreeMap<String, Vec<ChannelLane>>,
    options: &SourceOptions,
    config: &mut ChannelConfig,
) {
    let (inputs, outputs) = (options.object("ModelRatio"), options.object("CompletionRatio"));
    let directory = ModelDirectory::embedded();
    let mut unpriced = Vec::new();
    for (model, mut lanes) in lanes {
        lanes.sort_by_key(|lane| std::cmp::Reverse(lane.priority));
        let first = lanes.first().map(|lane| lane.priority);
        let alike = lanes.len() > 1 && lanes.iter().all(|lane| Some(lane.priority) == first);
        let names = lanes.iter().map(|lane| match alike {
            true => format!(
                "{{ lane = {}, weight = {} }}",
                toml_quoted(&lane.name),
                lane.weight.clamp(1, 1_000_000)
            ),
            false => toml_quoted(&lane.name),
        });
        let names: Vec<String> = names.collect();
        let _ = writeln!(
            config.text,
            "[models.{}]\nlanes = [{}]",
            toml_quoted(&model),
            names.join(", ")
        );
        let ratio =
            |ratios: &serde_json::Map<String, Value>| ratios.get(&model).and_then(Value::as_f64);
        match (ratio(&inputs), ratio(&outputs)) {
            (Some(input), Some(output)) => {
                let (input, output) =
                    (input * DOLLARS_PER_RATIO, input * output * DOLLARS_PER_RATIO);
                let (input, output) = (price_text(input), price_text(output));
                let _ = writeln!(
                    config.text,
                    "price = {{ input = \"{input}\", output = \"{output}\" }}"
                );
            }
            _ if directory.model(&model).is_some() => {}
            _ => {
                // Without a price calls would be free.
                let _ = writeln!(config.text, "# price = {{ input = \"…\", output = \"…\" }}");
                unpriced.push(model.clone());
            }
        }
        config.text.push('\n');
        config.models.push(model);
    }
    if let Some(list) = listed(&unpriced) {
        config.notes.push(format!(
            "these models have no price and would be free; write `price` in the configuration: {list}"
        ));
    }
}

/// Returns dollars per million tokens with six digits at most.
fn price_text(dollars: f64) -> String {
    let text = format!("{:.6}", dollars.max(0.0));
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0".to_owned() } else { text.to_owned() }
}
