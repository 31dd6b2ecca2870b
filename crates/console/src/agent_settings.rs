//! Settings with which coding agents use this gateway, with its address and models that it serves.

use catalog::{Catalog, ModelKind};

/// Text in place of a key that is not known.
const KEY_PLACE: &str = "sk-pt-YOUR-KEY";

/// Settings of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSettings {
    /// Name of the agent.
    pub agent: &'static str,
    /// Word by which the command line selects it.
    pub word: &'static str,
    /// Files to write, or commands to run, each with its place.
    pub steps: Vec<(&'static str, String)>,
}

const SHELL: &str = "shell";

/// Returns the settings of every known agent for a gateway at this address. Without a key they have a place
/// for one.
pub fn agent_settings(origin: &str, catalog: &Catalog, key: Option<&str>) -> Vec<AgentSettings> {
    let origin = origin.trim_end_matches('/');
    let key = key.unwrap_or(KEY_PLACE);
    // Every agent can use every chat model. Those of its own vendor are the usual choice.
    let (chat, responses) =
        (first_model(catalog, &[]), first_model(catalog, &["gpt", "responses"]));
    let messages = first_model(catalog, &["claude", "messages"]);
    let native = first_model(catalog, &["gemini", "native"]);
    let listed: Vec<String> =
        chat_models(catalog).map(|id| format!("        \"{id}\": {{}}")).collect();
    let agent = |agent, word, steps| AgentSettings { agent, word, steps };
    vec![
        agent(
            "Claude Code",
            "claude-code",
            vec![(
                SHELL,
                format!(
                    "export ANTHROPIC_BASE_URL={origin}\nexport ANTHROPIC_AUTH_TOKEN={key}\n\
                     export ANTHROPIC_MODEL={messages}\nexport ANTHROPIC_DEFAULT_HAIKU_MODEL={messages}\nclaude"
                ),
            )],
        ),
        agent(
            "Codex",
            "codex",
            vec![
                (
                    "~/.codex/config.toml",
                    format!(
                        "model = \"{responses}\"\nmodel_provider = \"portunus\"\n\n\
                         [model_providers.portunus]\nname = \"Portunus\"\nbase_url = \"{origin}/v1\"\n\
                         model_catalog_url = \"{origin}/v1/models\"\nenv_key = \"PORTUNUS_KEY\"\nwire_api = \"responses\""
                    ),
                ),
                (SHELL, format!("export PORTUNUS_KEY={key}\ncodex")),
            ],
        ),
        agent(
            "Gemini CLI",
            "gemini-cli",
            vec![
                (
                    "~/.gemini/settings.json",
                    "{\n  \"security\": { \"auth\": { \"selectedType\": \"gemini-api-key\" } }\n}"
                        .to_owned(),
                ),
                (
                    SHELL,
                    format!(
                        "export GOOGLE_GEMINI_BASE_URL={origin}\nexport GEMINI_API_KEY={key}\n\
                         gemini -m {native}"
                    ),
                ),
            ],
        ),
        agent(
            "opencode",
            "opencode",
            vec![
                (
                    "opencode.json",
                    format!(
                        "{{\n  \"provider\": {{\n    \"portunus\": {{\n      \"npm\": \"@ai-sdk/openai-compatible\",\n      \
                         \"name\": \"Portunus\",\n      \"options\": {{ \"baseURL\": \"{origin}/v1\", \"apiKey\": \"{{env:PORTUNUS_KEY}}\" }},\n      \
                         \"models\": {{\n{}\n      }}\n    }}\n  }}\n}}",
                        listed.join(",\n")
                    ),
                ),
                (SHELL, format!("export PORTUNUS_KEY={key}\nopencode --model portunus/{chat}")),
            ],
        ),
        agent(
            "Qwen Code",
            "qwen-code",
            vec![(
                SHELL,
                format!(
                    "export OPENAI_BASE_URL={origin}/v1\nexport OPENAI_API_KEY={key}\n\
                     export OPENAI_MODEL={chat}\nqwen --auth-type openai"
                ),
            )],
        ),
        agent(
            "aider",
            "aider",
            vec![(
                SHELL,
                format!(
                    "export OPENAI_API_BASE={origin}/v1\nexport OPENAI_API_KEY={key}\n\
                     aider --model openai/{chat}"
                ),
            )],
        ),
        agent(
            "llm",
            "llm",
            vec![
                (
                    "extra-openai-models.yaml in the folder of `llm logs path`",
                    format!(
                        "- model_id: portunus\n  model_name: {chat}\n  api_base: \"{origin}/v1\"\n  api_key_name: portunus"
                    ),
                ),
                (SHELL, format!("llm keys set portunus --value {key}\nllm -m portunus 'Hello'")),
            ],
        ),
    ]
}

fn chat_models(catalog: &Catalog) -> impl Iterator<Item = &str> {
    let models = catalog.iter().filter(|model| model.kind == ModelKind::Chat);
    models.map(|model| model.id.as_str())
}

/// Returns the first chat model with one of these words in its id, or else the first chat model.
fn first_model<'a>(catalog: &'a Catalog, words: &[&str]) -> &'a str {
    let preferred = words.iter().find_map(|word| chat_models(catalog).find(|id| id.contains(word)));
    preferred.or_else(|| chat_models(catalog).next()).unwrap_or("MODEL")
}
