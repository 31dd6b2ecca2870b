//! Providers of LiteLLM deployments, and the name of each model there.

use catalog::{AuthScheme, ModelDirectory, ProviderEntry};
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};

/// Provider prefixes of LiteLLM, and the matching ids of the directory.
const PROVIDER_IDS: [(&str, &str); 34] = [
    ("openai", "openai"),
    ("azure", "azure"),
    ("anthropic", "anthropic"),
    ("gemini", "gemini"),
    ("vertex_ai", "vertex"),
    ("vertex_ai_beta", "vertex"),
    ("bedrock", "bedrock-runtime"),
    ("groq", "groq"),
    ("mistral", "mistral"),
    ("deepseek", "deepseek"),
    ("xai", "xai"),
    ("openrouter", "openrouter"),
    ("together_ai", "together"),
    ("fireworks_ai", "fireworks"),
    ("perplexity", "perplexity"),
    ("cohere", "cohere"),
    ("cohere_chat", "cohere"),
    ("cerebras", "cerebras"),
    ("nvidia_nim", "nvidia"),
    ("ollama", "ollama"),
    ("ollama_chat", "ollama"),
    ("lm_studio", "lmstudio"),
    ("hosted_vllm", "vllm"),
    ("vllm", "vllm"),
    ("llamafile", "llamacpp"),
    ("moonshot", "moonshot"),
    ("dashscope", "alibaba"),
    ("minimax", "minimax"),
    ("zai", "zai"),
    ("meta_llama", "meta"),
    ("amazon_nova", "amazon"),
    ("openai_like", "compatible"),
    ("custom_openai", "compatible"),
    ("litellm_proxy", "compatible"),
];

/// Prefixes of model names that stand without a provider.
const MODEL_PREFIXES: [(&str, &str); 7] = [
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("text-embedding-", "openai"),
    ("claude-", "anthropic"),
];

/// Providers of the resulting configuration, without duplicates.
#[derive(Default)]
pub(super) struct ImportedProviders {
    providers: Vec<ImportedProvider>,
}

/// One provider: the directory entry it is like, its other settings, and its name.
struct ImportedProvider {
    like: &'static str,
    settings: String,
    name: String,
}

/// Reason why an entry cannot be imported.
#[derive(Debug)]
pub(super) struct ImportRefusal(String);

impl fmt::Display for ImportRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: Into<String>> From<T> for ImportRefusal {
    fn from(reason: T) -> Self {
        Self(reason.into())
    }
}

impl ImportedProviders {
    /// Returns the lane of a deployment. `Err` says why it cannot be imported; `notes` collects
    /// remaining work.
    pub(super) fn lane_for(
        &mut self,
        model: &str,
        params: &mut Map<String, Value>,
        env: &dyn Fn(&str) -> Option<String>,
        notes: &mut Vec<String>,
    ) -> Result<String, ImportRefusal> {
        let word = as_text(params.shift_remove("custom_llm_provider"));
        let (mut like, upstream) = split_model(model, word.as_deref())?;
        let base = match params.shift_remove("api_base").or(params.shift_remove("base_url")) {
            Some(value) => Some(base_url(&value, env)?),
            None => None,
        };
        // The OpenAI format at another address is a compatible provider, not OpenAI.
        let elsewhere = base.as_deref().is_some_and(|base| !base.contains("api.openai.com"));
        if like == "openai" && elsewhere {
            like = "compatible";
        }
        if like == "bedrock-runtime" && !upstream.contains("anthropic") {
            return Err("of Bedrock's models only Claude is asked by this endpoint; see \
                        `bedrock` in docs/providers.md for the others"
                .into());
        }
        let known = ModelDirectory::embedded().provider(like);
        let known = known.ok_or_else(|| format!("the directory has no provider `{like}`"))?;
        let settings = provider_settings(known, base, params, self.count(like), notes)?;
        Ok(format!("{}/{upstream}", self.name_for(like, settings)))
    }

    fn count(&self, like: &str) -> usize {
        self.providers.iter().filter(|provider| provider.like == like).count()
    }

    fn name_for(&mut self, like: &'static str, settings: String) -> String {
        let same =
            |provider: &&ImportedProvider| provider.like == like && provider.settings == settings;
        if let Some(provider) = self.providers.iter().find(same) {
            return provider.name.clone();
        }
        let name = match self.count(like) {
            0 => like.to_owned(),
            before => format!("{like}-{}", before + 1),
        };
        self.providers.push(ImportedProvider { like, settings, name: name.clone() });
        name
    }

    /// Writes the providers in the notation of the configuration file.
    pub(super) fn write(&self, out: &mut String) {
        for ImportedProvider { like, settings, name } in &self.providers {
            let _ = writeln!(out, "[providers.{name}]");
            if name != like {
                let _ = writeln!(out, "like = \"{like}\"");
            }
            out.push_str(settings);
            out.push('\n');
        }
    }
}

/// Returns the provider of a model name, and the model name at that provider.
fn split_model<'a>(
    model: &'a str,
    word: Option<&str>,
) -> Result<(&'static str, &'a str), ImportRefusal> {
    let known =
        |word: &str| PROVIDER_IDS.iter().find(|(own, _)| *own == word).map(|(_, like)| *like);
    if let Some(word) = word {
        let like = known(word).ok_or_else(|| format!("there is no counterpart of `{word}`"))?;
        let own = model.split_once('/').filter(|(head, _)| *head == word);
        return Ok((like, own.map_or(model, |(_, rest)| rest)));
    }
    if let Some((word, rest)) = model.split_once('/') {
        let like = known(word).ok_or_else(|| format!("there is no counterpart of `{word}`"))?;
        // Some prefixes select an endpoint. The gateway selects it by itself.
        let rest = ["responses/", "chat/", "converse/", "invoke/"]
            .iter()
            .find_map(|how| rest.strip_prefix(how))
            .unwrap_or(rest);
        return Ok((like, rest));
    }
    let like =
        MODEL_PREFIXES.iter().find(|(head, _)| model.starts_with(head)).map(|(_, like)| *like);
    like.map(|like| (like, model)).ok_or_else(|| format!("`{model}` names no provider").into())
}

/// Returns the settings of a provider that differ from its directory entry.
fn provider_settings(
    known: &ProviderEntry,
    base: Option<String>,
    params: &mut Map<String, Value>,
    before: usize,
    notes: &mut Vec<String>,
) -> Result<String, ImportRefusal> {
    let mut out = String::new();
    let mut fill: Vec<(&str, String)> = Vec::new();
    match (known.id.as_str(), base) {
        ("azure", Some(base)) => {
            let host = base.split("/openai").next().unwrap_or_default().to_owned();
            fill.push(("endpoint", host));
        }
        (_, Some(base)) => {
            let _ = writeln!(out, "base = {}", toml_quoted(&base));
        }
        (_, None) => {}
    }
    for (param, word) in [
        ("vertex_location", "region"),
        ("vertex_project", "project"),
        ("aws_region_name", "region"),
    ] {
        if let Some(value) = as_text(params.shift_remove(param)) {
            fill.push((word, value));
        }
    }
    if let Some(version) = as_text(params.shift_remove("api_version")) {
        notes.push(format!("api_version {version} is left out: the newer address needs none"));
    }
    let region = fill.iter().find(|(word, _)| *word == "region").map(|(_, region)| region.clone());
    if !fill.is_empty() {
        let words: Vec<String> =
            fill.iter().map(|(word, value)| format!("{word} = {}", toml_quoted(value))).collect();
        let _ = writeln!(out, "fill = {{ {} }}", words.join(", "));
    }
    let mut secret = |name: &str, usual: &str| {
        let value = params.shift_remove(name)?;
        Some(secret_reference(&value, usual, before, notes))
    };
    let usual = known.key_env.first().map_or("API_KEY", String::as_str);
    let auth = match &known.auth {
        AuthScheme::Bearer => secret("api_key", usual).map(|key| format!("{{ bearer = {key} }}")),
        AuthScheme::Header(name) => secret("api_key", usual)
            .map(|key| format!("{{ header = {}, value = {key} }}", toml_quoted(name))),
        AuthScheme::Google => {
            let account = secret("vertex_credentials", "GOOGLE_APPLICATION_CREDENTIALS");
            account.map(|account| format!("{{ google = {account} }}"))
        }
        AuthScheme::SigV4(_) => {
            let access = secret("aws_access_key_id", "AWS_ACCESS_KEY_ID");
            let key = secret("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY");
            let region = region.map(|region| format!("region = {}, ", toml_quoted(&region)));
            access.zip(key).map(|(access, key)| {
                let region = region.unwrap_or_default();
                format!("{{ sigv4 = {{ {region}access_key = {access}, secret_key = {key} }} }}")
            })
        }
        AuthScheme::None => secret("api_key", "API_KEY").map(|key| format!("{{ bearer = {key} }}")),
    };
    match auth {
        Some(auth) => {
            let _ = writeln!(out, "auth = {auth}");
        }
        None if known.id == "compatible" => out.push_str("auth = \"none\"\n"),
        None => {}
    }
    Ok(out)
}

/// Returns a reference to a secret. A literal secret is never copied: a note asks to put it into an
/// environment variable.
fn secret_reference(value: &Value, usual: &str, before: usize, notes: &mut Vec<String>) -> String {
    let value = value.as_str().unwrap_or_default();
    if let Some(name) = value.strip_prefix("os.environ/") {
        return format!("{{ env = {} }}", toml_quoted(name));
    }
    let name = match before {
        0 => usual.to_owned(),
        before => format!("{usual}_{}", before + 1),
    };
    notes.push(format!("a secret stands in the file itself: put it into {name}, export {name}=…"));
    format!("{{ env = {} }}", toml_quoted(&name))
}

/// Returns the address before `/v1`. It may be in an environment variable.
fn base_url(value: &Value, env: &dyn Fn(&str) -> Option<String>) -> Result<String, ImportRefusal> {
    let value = value.as_str().ok_or("api_base: must be a text")?;
    let value = match value.strip_prefix("os.environ/") {
        None => value.to_owned(),
        Some(name) => env(name).ok_or_else(|| {
            format!("its address is in {name}, which is not set; export it and import again")
        })?,
    };
    let value = value.trim_end_matches('/');
    let value = ["/v1/messages", "/chat/completions", "/v1", "/v1beta"]
        .iter()
        .fold(value, |value, end| value.strip_suffix(end).unwrap_or(value));
    Ok(value.trim_end_matches('/').to_owned())
}

/// Quotes a text for TOML.
pub(super) fn toml_quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Returns a text, also if it was written as a number.
pub(super) fn as_text(value: Option<Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
