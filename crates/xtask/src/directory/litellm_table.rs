//! The price table of LiteLLM, `model_prices_and_context_window.json`
//! (<https://github.com/BerriAI/litellm>).

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use super::price_table::{NamedPrices, PublicTable, conditional_name};

/// Our providers with the prefix of their models and the words of `litellm_provider`.
const PROVIDERS: [(&str, &str, &[&str]); 21] = [
    ("alibaba", "dashscope", &["dashscope"]),
    ("amazon", "bedrock", &["bedrock", "bedrock_converse"]),
    ("anthropic", "anthropic", &["anthropic"]),
    ("azure", "azure", &["azure", "azure_ai"]),
    ("bedrock", "bedrock", &["bedrock", "bedrock_converse"]),
    ("bedrock-runtime", "bedrock", &["bedrock", "bedrock_converse"]),
    ("cerebras", "cerebras", &["cerebras"]),
    ("cohere", "cohere", &["cohere", "cohere_chat"]),
    ("deepseek", "deepseek", &["deepseek"]),
    ("fireworks", "fireworks_ai", &["fireworks_ai"]),
    ("gemini", "gemini", &["gemini"]),
    ("groq", "groq", &["groq"]),
    ("minimax", "minimax", &["minimax"]),
    ("mistral", "mistral", &["mistral"]),
    ("moonshot", "moonshot", &["moonshot"]),
    ("openai", "openai", &["openai"]),
    ("openrouter", "openrouter", &["openrouter"]),
    ("perplexity", "perplexity", &["perplexity"]),
    ("together", "together_ai", &["together_ai"]),
    ("xai", "xai", &["xai"]),
    ("zai", "zai", &["zai"]),
];
/// Words of `litellm_provider` at Google's cloud begin with this.
const VERTEX: &str = "vertex_ai";
const MILLION: f64 = 1e6;

/// Fields, our dimension, and the factor to our unit.
const FIELDS: [(&str, &str, f64); 12] = [
    ("input_cost_per_token", "input", MILLION),
    ("output_cost_per_token", "output", MILLION),
    ("cache_read_input_token_cost", "cached_input", MILLION),
    ("cache_creation_input_token_cost_above_1hr", "cache_write_long", MILLION),
    ("cache_creation_input_token_cost", "cache_write", MILLION),
    ("input_cost_per_audio_token", "input_audio", MILLION),
    ("output_cost_per_audio_token", "output_audio", MILLION),
    ("input_cost_per_image_token", "input_image", MILLION),
    ("output_cost_per_image_token", "output_image", MILLION),
    ("output_cost_per_reasoning_token", "thinking", MILLION),
    ("output_cost_per_image", "image", 1.0),
    ("input_cost_per_request", "request", 1.0),
];

/// The parsed table.
pub(super) struct LitellmTable(Map<String, Value>);

/// Reads the table.
pub(super) fn read(table: &Value) -> Result<LitellmTable> {
    let table = table.as_object().context("the table of LiteLLM is an object")?;
    Ok(LitellmTable(table.clone()))
}

impl PublicTable for LitellmTable {
    fn find(&self, provider: &str, model: &str) -> Option<(String, NamedPrices)> {
        let known = PROVIDERS.iter().find(|(id, _, _)| *id == provider);
        let (prefix, words): (&str, &[&str]) = match known {
            Some((_, prefix, words)) => (prefix, words),
            None if provider == "vertex" => (VERTEX, &[]),
            None => return None,
        };
        [format!("{prefix}/{model}"), model.to_owned()].into_iter().find_map(|key| {
            let entry = self.0.get(&key)?.as_object()?;
            let word = entry.get("litellm_provider")?.as_str()?;
            let is_vertex = provider == "vertex" && word.starts_with(VERTEX);
            let prices = (is_vertex || words.contains(&word)).then(|| prices_of(entry))?;
            (!prices.is_empty()).then_some((key, prices))
        })
    }
}

fn prices_of(entry: &Map<String, Value>) -> NamedPrices {
    let mut prices = NamedPrices::new();
    for (key, value) in entry {
        // A zero of this table means "unknown", or that the quantity is counted as another one.
        let Some(price) = value.as_f64().filter(|price| *price > 0.0) else { continue };
        let field = FIELDS.iter().find_map(|(field, dimension, factor)| {
            let (tier, above) = conditions(key.strip_prefix(field)?)?;
            Some((conditional_name(dimension, tier, above), price * factor))
        });
        prices.extend(field);
    }
    let search = entry.get("search_context_cost_per_query").and_then(Value::as_object);
    let costs: Vec<f64> =
        search.into_iter().flat_map(Map::values).filter_map(Value::as_f64).collect();
    // The price may depend on the amount of results, which other dimensions describe here.
    if let Some(first) = costs.first()
        && costs.iter().all(|cost| cost == first)
    {
        prices.insert("search".to_owned(), *first);
    }
    prices
}

/// Reads the end of a field, such as `_above_200k_tokens_priority`.
fn conditions(end: &str) -> Option<(Option<&'static str>, Option<u64>)> {
    let mut rest = end;
    let mut above = None;
    if let Some(after) = rest.strip_prefix("_above_") {
        let (thousands, after) = after.split_once("k_tokens")?;
        above = Some(thousands.parse::<u64>().ok()? * 1000);
        rest = after;
    }
    let tier = match rest {
        "" => None,
        "_batches" => Some("batch"),
        "_flex" => Some("flex"),
        "_priority" => Some("priority"),
        _ => return None,
    };
    Some((tier, above))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_are_found_by_prefix_and_provider_with_their_conditions() {
        let table = json!({
            "sample_spec": { "input_cost_per_token": 0 },
            "gpt-x": {
                "litellm_provider": "openai", "mode": "chat",
                "input_cost_per_token": 1.25e-6, "input_cost_per_token_batches": 6.25e-7,
                "input_cost_per_token_above_272k_tokens": 2.5e-6,
                "input_cost_per_token_above_272k_tokens_priority": 5e-6,
                "cache_creation_input_token_cost_above_1hr": 4e-6,
                "output_cost_per_token_somehow": 1.0, "output_cost_per_token": 0.0,
                "search_context_cost_per_query":
                    { "search_context_size_low": 0.01, "search_context_size_high": 0.01 },
            },
            "gemini/g": { "litellm_provider": "gemini", "output_cost_per_token": 1e-5 },
            "vertex_ai/claude": { "litellm_provider": "vertex_ai-anthropic_models", "input_cost_per_token": 1e-6 },
        });
        let table = read(&table).unwrap();
        let (entry, prices) = table.find("openai", "gpt-x").unwrap();
        assert_eq!(entry, "gpt-x");
        let names: Vec<_> =
            prices.iter().map(|(name, price)| format!("{name} = {price}")).collect();
        assert_eq!(
            names,
            [
                "cache_write_long = 4",
                "input = 1.25",
                "input, above 272000 = 2.5",
                "input, batch = 0.625",
                "input, priority, above 272000 = 5",
                "search = 0.01"
            ]
        );
        assert_eq!(table.find("gemini", "g").unwrap().0, "gemini/g");
        assert_eq!(table.find("vertex", "claude").unwrap().0, "vertex_ai/claude");
        assert!(table.find("anthropic", "gpt-x").is_none(), "another provider's entry");
        assert!(table.find("demo", "gpt-x").is_none());
        assert!(read(&json!([])).is_err());
    }
}
