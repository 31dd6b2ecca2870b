//! Request formats on the pages, and settings of command-line tools.

use catalog::{Model, ModelKind};
use serde_json::{Value, json};

/// Placeholder for the key in the shell: an environment variable.
pub(crate) const KEY_VARIABLE: &str = "$PORTUNUS_KEY";

/// A request format of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiFormat {
    Chat,
    Responses,
    Messages,
    Native,
    Images,
    Embeddings,
}

impl ApiFormat {
    /// All formats in display order.
    pub(crate) const ALL: [Self; 6] =
        [Self::Chat, Self::Responses, Self::Messages, Self::Native, Self::Images, Self::Embeddings];

    /// Name of the format in the configuration and the API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Native => "native",
            Self::Images => "images",
            Self::Embeddings => "embeddings",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Chat => "Chat completions",
            Self::Responses => "Responses",
            Self::Messages => "Messages",
            Self::Native => "Generate content",
            Self::Images => "Images",
            Self::Embeddings => "Embeddings",
        }
    }

    /// Client libraries that use the format.
    pub(crate) const fn clients(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses | Self::Images | Self::Embeddings => {
                "OpenAI SDKs and tools made for them"
            }
            Self::Messages => "Anthropic SDKs and Claude Code",
            Self::Native => "Google Gen AI SDKs, API version v1beta",
        }
    }

    /// Base URL the client libraries expect.
    pub(crate) fn base_url(self, url: &str) -> String {
        match self {
            Self::Chat | Self::Responses | Self::Images | Self::Embeddings => format!("{url}/v1"),
            Self::Messages | Self::Native => url.to_owned(),
        }
    }

    /// Returns true if every model of this kind can be called in the format.
    pub(crate) const fn supports(self, kind: ModelKind) -> bool {
        match (self, kind) {
            (Self::Chat | Self::Responses | Self::Messages | Self::Native, ModelKind::Chat)
            | (Self::Images, ModelKind::Image)
            | (Self::Embeddings | Self::Native, ModelKind::Embedding) => true,
            (Self::Chat | Self::Responses | Self::Messages | Self::Native, ModelKind::Image)
            | (Self::Chat | Self::Responses | Self::Messages, ModelKind::Embedding)
            | (Self::Images, ModelKind::Chat | ModelKind::Embedding)
            | (Self::Embeddings, ModelKind::Chat | ModelKind::Image) => false,
        }
    }
}

/// Environment of Claude Code (<https://docs.anthropic.com/en/docs/claude-code/llm-gateway>).
pub(crate) fn claude_code(url: &str, model: &str, key: &str) -> String {
    let model = shell_quoted(model);
    format!(
        "export ANTHROPIC_BASE_URL={}\n\
         export ANTHROPIC_AUTH_TOKEN={}\n\
         export ANTHROPIC_MODEL={model}\n\
         export ANTHROPIC_DEFAULT_HAIKU_MODEL={model}\n\
         claude",
        shell_quoted(&ApiFormat::Messages.base_url(url)),
        shell_quoted(key),
    )
}

/// Configuration of Codex.
pub(crate) fn codex(url: &str, model: &str, key: &str) -> String {
    format!(
        "# ~/.codex/config.toml\n\
         model = {}\n\
         model_provider = \"portunus\"\n\n\
         [model_providers.portunus]\n\
         name = \"Portunus\"\n\
         base_url = {}\n\
         env_key = \"PORTUNUS_KEY\"\n\
         wire_api = \"responses\"\n\n\
         # in the shell\n\
         export PORTUNUS_KEY={}\n\
         codex",
        Value::from(model),
        Value::from(ApiFormat::Responses.base_url(url)),
        shell_quoted(key),
    )
}

/// Environment of the Gemini CLI.
pub(crate) fn gemini_cli(url: &str, model: &str, key: &str) -> String {
    format!(
        "export GOOGLE_GEMINI_BASE_URL={}\n\
         export GEMINI_API_KEY={}\n\
         gemini -m {}",
        shell_quoted(&ApiFormat::Native.base_url(url)),
        shell_quoted(key),
        shell_quoted(model),
    )
}

/// Environment variables that client libraries and tools read.
pub(crate) fn environment(url: &str, key: &str, formats: &[ApiFormat]) -> String {
    let mut lines = Vec::new();
    let mut set = |base: &str, name: &str, format: ApiFormat| {
        lines.push(format!("export {base}={}", shell_quoted(&format.base_url(url))));
        lines.push(format!("export {name}={}", shell_quoted(key)));
    };
    if formats.iter().any(|format| matches!(format, ApiFormat::Chat | ApiFormat::Responses)) {
        set("OPENAI_BASE_URL", "OPENAI_API_KEY", ApiFormat::Chat);
    }
    if formats.contains(&ApiFormat::Messages) {
        set("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", ApiFormat::Messages);
    }
    if formats.contains(&ApiFormat::Native) {
        set("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", ApiFormat::Native);
    }
    lines.join("\n")
}

/// The formats in which the model is shown, its own first. An image model that converses also
/// has the native one, which is the only one with a place for pictures in answers.
pub(crate) fn formats_for(formats: &[ApiFormat], model: &Model, converses: bool) -> Vec<ApiFormat> {
    let native = |format: &ApiFormat| converses && *format == ApiFormat::Native;
    // Official clients of the native format put an id into the path as it is.
    let is_odd =
        model.id.contains(['?', '#', '&', '%', '\\']) || model.id.starts_with("tunedModels/");
    let can_name = |format: &ApiFormat| *format != ApiFormat::Native || !is_odd;
    let shown =
        |format: &ApiFormat| can_name(format) && (format.supports(model.kind) || native(format));
    let mut formats: Vec<_> = formats.iter().copied().filter(shown).collect();
    if model.kind != ModelKind::Chat {
        formats.sort_by_key(|format| *format == ApiFormat::Native);
    }
    formats
}

/// Formats a body with one line per field.
pub(crate) fn pretty_body(body: &Value) -> String {
    let Value::Object(fields) = body else { return body.to_string() };
    let line = |(name, value): (&String, &Value)| format!("    {}: {value}", json!(name));
    format!("{{\n{}\n  }}", fields.iter().map(line).collect::<Vec<_>>().join(",\n"))
}

/// Quotes a word for the shell if needed.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { single_quoted(word) }
}

pub(crate) fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_served_formats_only() {
        let text = environment("https://gw.example", "k", &[ApiFormat::Chat]);
        assert_eq!(text, "export OPENAI_BASE_URL=https://gw.example/v1\nexport OPENAI_API_KEY=k");
        assert_eq!(environment("https://gw.example", "k", &ApiFormat::ALL).lines().count(), 6);
    }
}
