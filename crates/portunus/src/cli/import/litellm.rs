//! Converts a LiteLLM `config.yaml`: <https://docs.litellm.ai/docs/proxy/configs>.
//!
//! Every understood field is removed from the parsed file. Fields that remain are reported as not
//! imported.

use anyhow::{anyhow, bail};
use serde_json::{Map, Value};
use std::fmt::Write as _;

use super::ImportResult;
use super::providers::{ImportRefusal, ImportedProviders, as_text, toml_quoted};

/// Parameters of a deployment that have no counterpart or are the default here.
const IGNORED_PARAMS: [&str; 5] =
    ["drop_params", "max_retries", "num_retries", "mock_response", "tags"];
/// Note about limits of deployments.
const LIMITS_ARE_PER_KEY: &str = "limits are set per key: `portunus keys create --rpm … --tpm …`";

/// A model of the resulting configuration.
#[derive(Default)]
struct ImportedModel {
    name: String,
    lanes: Vec<(String, Option<u64>)>,
    price: Vec<(&'static str, String)>,
    kind: Option<&'static str>,
    context: Option<u64>,
    max_output: Option<u64>,
    aliases: Vec<String>,
    fallback: Vec<String>,
}

/// Converts the file. `env` looks up environment variables that hold addresses.
pub(super) fn convert(
    yaml: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<ImportResult> {
    let root: Value = serde_saphyr::from_str(yaml).map_err(|e| {
        // Only the position is reported, because the line may contain a secret.
        let line = e.location().map_or(0, |at| at.line());
        anyhow!("line {line} is not YAML that can be read")
    })?;
    let Value::Object(mut root) = root else { bail!("is not a configuration: it has no fields") };
    let Some(Value::Array(list)) = root.shift_remove("model_list") else {
        bail!("has no `model_list`");
    };
    let (mut providers, mut models, mut notes) =
        (ImportedProviders::default(), Vec::new(), Vec::new());
    for (at, entry) in list.into_iter().enumerate() {
        let path = format!("model_list[{at}]");
        let mut entry_notes = Vec::new();
        if let Err(why) = add_deployment(entry, &mut providers, &mut models, env, &mut entry_notes)
        {
            entry_notes.push(format!("left out: {why}"));
        }
        notes.extend(entry_notes.into_iter().map(|note| format!("{path}: {note}")));
    }
    for name in ["router_settings", "litellm_settings", "general_settings"] {
        if let Some(Value::Object(settings)) = root.shift_remove(name) {
            notes.extend(
                apply_settings(settings, &mut models)
                    .into_iter()
                    .map(|note| format!("{name}.{note}")),
            );
        }
    }
    notes.extend(root.keys().map(|name| format!("{name}: is not imported")));
    let mut out = String::from("# Made from the configuration of a LiteLLM proxy.\n\n");
    providers.write(&mut out);
    for model in &models {
        model.write(&mut out);
    }
    Ok(ImportResult { text: out, notes })
}

/// Adds one entry of `model_list` as a lane of the model it names.
fn add_deployment(
    entry: Value,
    providers: &mut ImportedProviders,
    models: &mut Vec<ImportedModel>,
    env: &dyn Fn(&str) -> Option<String>,
    notes: &mut Vec<String>,
) -> Result<(), ImportRefusal> {
    let Value::Object(mut entry) = entry else { return Err("is not a deployment".into()) };
    let name = as_text(entry.shift_remove("model_name")).ok_or("has no `model_name`")?;
    let mut params = object(entry.shift_remove("litellm_params"));
    let mut info = object(entry.shift_remove("model_info"));
    let model = as_text(params.shift_remove("model")).ok_or("has no `litellm_params.model`")?;
    if name.contains('*') || model.contains('*') {
        return Err(format!(
            "`{name}` stands for many models: a provider whose key is set serves all models the \
             directory knows of it; name others one by one"
        )
        .into());
    }
    let kind = match as_text(info.shift_remove("mode")).as_deref() {
        None | Some("chat" | "completion" | "responses") => None,
        Some("embedding") => Some("embedding"),
        Some("image_generation") => Some("image"),
        Some(other) => return Err(format!("models of the kind `{other}` are not served").into()),
    };
    let lane = providers.lane_for(&model, &mut params, env, notes)?;
    let weight = params.shift_remove("weight").and_then(|weight| weight.as_u64());
    let at = models.iter().position(|model| model.name == name).unwrap_or_else(|| {
        models.push(ImportedModel { name: name.clone(), ..ImportedModel::default() });
        models.len() - 1
    });
    let Some(imported) = models.get_mut(at) else { return Ok(()) };
    imported.lanes.push((lane, weight));
    imported.kind = imported.kind.or(kind);
    for (field, word) in [
        ("input_cost_per_token", "input"),
        ("output_cost_per_token", "output"),
        ("cache_read_input_token_cost", "cached_input"),
        ("cache_creation_input_token_cost", "cache_write"),
    ] {
        let cost = params.shift_remove(field).or_else(|| info.shift_remove(field));
        let cost = cost.and_then(|cost| cost.as_f64().or_else(|| cost.as_str()?.parse().ok()));
        if let Some(cost) = cost
            && !imported.price.iter().any(|(known, _)| *known == word)
        {
            imported.price.push((word, per_million(cost)));
        }
    }
    let mut count = |name: &str| info.shift_remove(name).and_then(|count| count.as_u64());
    imported.context = imported.context.or(count("max_input_tokens"));
    imported.max_output =
        imported.max_output.or(count("max_output_tokens").or(count("max_tokens")));
    for name in ["rpm", "tpm", "max_parallel_requests"] {
        if params.shift_remove(name).is_some() {
            notes.push(format!("litellm_params.{name}: is not imported; {LIMITS_ARE_PER_KEY}"));
        }
    }
    let unknown = params.keys().filter(|name| !IGNORED_PARAMS.contains(&name.as_str()));
    notes.extend(unknown.map(|name| format!("litellm_params.{name}: is not imported")));
    notes.extend(info.keys().filter(|name| *name != "id").map(|name| {
        format!("model_info.{name}: is not imported; the directory knows most models")
    }));
    notes.extend(entry.keys().map(|name| format!("{name}: is not imported")));
    Ok(())
}

/// Applies one section of settings. Returns notes about the settings without a counterpart.
fn apply_settings(mut settings: Map<String, Value>, models: &mut [ImportedModel]) -> Vec<String> {
    let mut notes = Vec::new();
    let known =
        |models: &[ImportedModel], name: &str| models.iter().any(|model| model.name == name);
    if let Some(Value::Object(aliases)) = settings.shift_remove("model_group_alias") {
        for (alias, of) in aliases {
            let of = of.get("model").unwrap_or(&of).as_str().unwrap_or_default().to_owned();
            match models.iter_mut().find(|model| model.name == of) {
                Some(model) => model.aliases.push(alias),
                None => notes.push(format!("model_group_alias.{alias}: there is no model `{of}`")),
            }
        }
    }
    for field in ["fallbacks", "context_window_fallbacks", "content_policy_fallbacks"] {
        let Some(Value::Array(list)) = settings.shift_remove(field) else { continue };
        if field != "fallbacks" {
            notes.push(format!("{field}: is not imported; a fallback serves every failure"));
            continue;
        }
        for (name, others) in list.into_iter().flat_map(|entry| object(Some(entry))) {
            let others: Vec<String> = others
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|o| as_text(Some(o.clone())))
                .collect();
            let (here, gone): (Vec<String>, Vec<String>) =
                others.into_iter().partition(|other| known(models, other) && *other != name);
            notes.extend(gone.iter().map(|other| {
                format!("fallbacks.{name}: there is no model `{other}` to fall back to")
            }));
            match models.iter_mut().find(|model| model.name == name) {
                Some(model) => model.fallback.extend(here),
                None => notes.push(format!("fallbacks.{name}: there is no such model")),
            }
        }
    }
    for name in settings.keys() {
        notes.push(format!("{name}: is not imported{}", advice(name)));
    }
    notes
}

/// Returns a hint about the counterpart of a setting.
fn advice(name: &str) -> &'static str {
    match name {
        "master_key" => "; keys are made with `portunus keys create`",
        "database_url" => "; the place of the store is `store.url`",
        "redis_host" | "redis_port" | "redis_password" | "redis_url" => {
            "; several nodes share limits through `shared.valkey`"
        }
        "request_timeout" | "timeout" | "stream_timeout" => "; see `timeouts`",
        "num_retries" | "allowed_fails" | "cooldown_time" | "retry_policy" => {
            "; lanes are retried and cooled down automatically"
        }
        "drop_params" => "; parameters a model does not support are reported in `x-portunus-loss`",
        "routing_strategy" => "; lanes of one model share by weight, see `order`",
        _ => "",
    }
}

impl ImportedModel {
    fn write(&self, out: &mut String) {
        let Self { name, lanes, price, kind, context, max_output, aliases, fallback } = self;
        let _ = writeln!(out, "[models.{}]", toml_quoted(name));
        // Deployments of one name share its calls by weight. A single lane needs no weight.
        let lanes: Vec<String> = match lanes.as_slice() {
            [(lane, _)] => vec![toml_quoted(lane)],
            several => several
                .iter()
                .map(|(lane, weight)| {
                    let weight = weight.filter(|weight| *weight > 0).unwrap_or(1);
                    format!("{{ lane = {}, weight = {weight} }}", toml_quoted(lane))
                })
                .collect(),
        };
        let _ = writeln!(out, "lanes = [{}]", lanes.join(", "));
        let list = |words: &[String]| {
            words.iter().map(|word| toml_quoted(word)).collect::<Vec<_>>().join(", ")
        };
        if !aliases.is_empty() {
            let _ = writeln!(out, "aliases = [{}]", list(aliases));
        }
        if !fallback.is_empty() {
            let _ = writeln!(out, "fallback = [{}]", list(fallback));
        }
        if let Some(kind) = kind {
            let _ = writeln!(out, "kind = \"{kind}\"");
        }
        if !price.is_empty() {
            let prices: Vec<String> =
                price.iter().map(|(word, cost)| format!("{word} = \"{cost}\"")).collect();
            let _ = writeln!(out, "price = {{ {} }}", prices.join(", "));
        }
        for (word, count) in [("context", context), ("max_output", max_output)] {
            if let Some(count) = count {
                let _ = writeln!(out, "{word} = {count}");
            }
        }
        out.push('\n');
    }
}

/// Converts dollars per token to dollars per million tokens. LiteLLM stores binary fractions, so
/// the last digits are rounded away.
fn per_million(cost: f64) -> String {
    let text = format!("{:.6}", cost * 1e6);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0".to_owned() } else { text.to_owned() }
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
