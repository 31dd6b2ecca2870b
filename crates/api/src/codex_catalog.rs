//! The model catalog of Codex: `models` of `GET /v1/models?client_version=…`, which Codex asks for if its
//! provider has a `model_catalog_url`. The fields are those of `codex debug models`; without an entry Codex
//! warns that it does not know the model, and guesses its context window.

use canon::{EffortLevel, ToolKind};
use catalog::{Model, ModelKind};
use serde_json::{Value, json};

/// Parameter by which Codex asks for its catalog.
pub(crate) const VERSION_PARAMETER: &str = "client_version";
/// Tokens of a tool result that Codex keeps, as for its own models.
const MAX_RESULT_TOKENS: u32 = 10_000;
/// Instructions of the agent. An entry must have some, and Codex then uses no others.
const INSTRUCTIONS: &str = "\
You are Codex, a coding agent in a terminal. You and the user share one workspace. Work on the task until it \
is done, and say what you did in a few sentences.

- Read the relevant files before you change them, and keep to their style. Make the smallest change that \
solves the task, and leave unrelated code alone.
- Use the shell tool to look around, to build and to test. Prefer `rg` for searches. Change files with \
`apply_patch`.
- Never undo changes of others, never run destructive commands such as `git reset --hard`, and do not commit \
unless you are asked to.
- Follow the instructions of `AGENTS.md` files in the folders that you touch.
- Check your work with the tests of the project where there are some, and tell honestly what you could not \
check.";

/// Levels of effort that Codex knows, with their description.
const LEVELS: [(EffortLevel, &str); 4] = [
    (EffortLevel::Low, "Fast answers with lighter reasoning"),
    (EffortLevel::Medium, "Balances speed and depth of reasoning"),
    (EffortLevel::High, "Greater depth of reasoning for complex problems"),
    (EffortLevel::XHigh, "Extra depth of reasoning for the hardest problems"),
];

/// Returns the entries of chat models.
pub(crate) fn entries(models: &[(&str, &Model)]) -> Vec<Value> {
    let chat = models.iter().filter(|(_, model)| model.kind == ModelKind::Chat);
    chat.enumerate().map(|(place, (id, model))| entry(place, id, model)).collect()
}

fn entry(place: usize, id: &str, model: &Model) -> Value {
    let can = &model.capabilities;
    let known = can.thinking.range().map(|range| range.levels.as_slice()).unwrap_or_default();
    let levels = LEVELS.iter().filter(|(level, _)| known.contains(level));
    let levels: Vec<Value> = levels
        .map(|(level, about)| json!({ "effort": level.as_str(), "description": about }))
        .collect();
    let default = if known.contains(&EffortLevel::Medium) { Some("medium") } else { None };
    let default = default.or_else(|| levels.first()?.get("effort")?.as_str());
    // Codex knows no other media.
    let reads_images = can.input.iter().any(|word| word == "image");
    let modalities: &[&str] = if reads_images { &["text", "image"] } else { &["text"] };
    let uses_tools = can.tools.as_ref().is_none_or(|tools| tools.contains(&ToolKind::Function));
    json!({
        "slug": id,
        "display_name": id,
        "description": model.about,
        "default_reasoning_level": default,
        "supported_reasoning_levels": levels,
        "shell_type": if uses_tools { "unified_exec" } else { "disabled" },
        "visibility": "list",
        "supported_in_api": true,
        "priority": place,
        "base_instructions": INSTRUCTIONS,
        "support_verbosity": false,
        "apply_patch_tool_type": uses_tools.then_some("freeform"),
        "truncation_policy": { "mode": "tokens", "limit": MAX_RESULT_TOKENS },
        "context_window": can.context_window,
        "max_context_window": can.context_window,
        "input_modalities": modalities,
        "supports_search_tool": false,
        "experimental_supported_tools": [],
    })
}
