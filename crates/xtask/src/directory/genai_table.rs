//! The price table of genai-prices, `data.json` (<https://github.com/pydantic/genai-prices>).

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use super::price_table::{NamedPrices, PublicTable, conditional_name};

/// Our providers with the id of theirs.
const PROVIDERS: [(&str, &str); 20] = [
    ("amazon", "aws"),
    ("anthropic", "anthropic"),
    ("azure", "azure"),
    ("bedrock", "aws"),
    ("bedrock-runtime", "aws"),
    ("cerebras", "cerebras"),
    ("cohere", "cohere"),
    ("deepseek", "deepseek"),
    ("fireworks", "fireworks"),
    ("gemini", "google"),
    ("groq", "groq"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
    ("moonshot", "moonshotai"),
    ("openai", "openai"),
    ("openrouter", "openrouter"),
    ("perplexity", "perplexity"),
    ("together", "together"),
    ("xai", "x-ai"),
    ("zai", "zai"),
];

/// Fields, our dimension, and the factor to our unit.
const FIELDS: [(&str, &str, f64); 12] = [
    ("input_mtok", "input", 1.0),
    ("output_mtok", "output", 1.0),
    ("cache_read_mtok", "cached_input", 1.0),
    ("cache_write_mtok", "cache_write", 1.0),
    ("cache_write_1h_mtok", "cache_write_long", 1.0),
    ("input_audio_mtok", "input_audio", 1.0),
    ("output_audio_mtok", "output_audio", 1.0),
    ("input_image_mtok", "input_image", 1.0),
    ("output_image_mtok", "output_image", 1.0),
    ("requests_kcount", "request", 0.001),
    ("web_searches_kcount", "search", 0.001),
    ("storage_searches_kcount", "file_search", 0.001),
];

/// The parsed table, with the prices of one day.
pub(super) struct GenaiTable {
    providers: Map<String, Value>,
    today: String,
}

/// Reads the table.
pub(super) fn read(table: &Value, today: &str) -> Result<GenaiTable> {
    let list = table.as_array().context("the table of genai-prices is a list of providers")?;
    let provider =
        |of: &Value| Some((of.get("id")?.as_str()?.to_owned(), of.get("models")?.clone()));
    Ok(GenaiTable {
        providers: list.iter().filter_map(provider).collect(),
        today: today.to_owned(),
    })
}

impl PublicTable for GenaiTable {
    fn find(&self, provider: &str, model: &str) -> Option<(String, NamedPrices)> {
        let (_, theirs) = PROVIDERS.iter().find(|(id, _)| *id == provider)?;
        let models = self.providers.get(*theirs)?.as_array()?;
        let id_of = |entry: &Value| entry.get("id").and_then(Value::as_str).map(str::to_owned);
        let by_id = models.iter().find(|entry| id_of(entry).as_deref() == Some(model));
        let matching =
            || models.iter().find(|entry| entry.get("match").is_some_and(|of| matches(of, model)));
        let entry = by_id.or_else(matching)?;
        let mut prices = NamedPrices::new();
        for step in self.steps(entry.get("prices")?) {
            let mut announced = NamedPrices::new();
            add_prices(&mut announced, step, None);
            for (name, price) in announced {
                let known = prices.entry(name).or_insert(price);
                *known = known.max(price);
            }
        }
        let variants = entry.get("price_variants").and_then(Value::as_array);
        for variant in variants.into_iter().flatten().filter(|of| self.applies(of)) {
            let when = variant.get("when").and_then(Value::as_object)?;
            let tier =
                when.iter().map(|(kind, word)| tier_of(kind, word.as_str().unwrap_or_default()));
            // A variant with two conditions has no dimension here.
            if let [Some(tier)] = tier.collect::<Vec<_>>().as_slice()
                && let Some(list) = variant.get("prices").and_then(Value::as_object)
            {
                add_prices(&mut prices, list, Some(tier));
            }
        }
        (!prices.is_empty()).then_some((id_of(entry)?, prices))
    }
}

impl GenaiTable {
    /// Returns the prices of the day and those that are announced. The highest one counts, because the
    /// directory has list prices and no introductory ones.
    fn steps<'a>(&self, prices: &'a Value) -> Vec<&'a Map<String, Value>> {
        let Value::Array(steps) = prices else { return prices.as_object().into_iter().collect() };
        let begun = steps.iter().rposition(|step| self.applies(step)).unwrap_or(0);
        let steps = steps.get(begun..).unwrap_or_default();
        // Prices of an hour of the day are discounts.
        let dated = steps.iter().filter(|step| self.applies(step) || start_of(step).is_some());
        dated.filter_map(|step| step.get("prices")?.as_object()).collect()
    }

    fn applies(&self, step: &Value) -> bool {
        match step.get("constraint") {
            None | Some(Value::Null) => true,
            Some(_) => start_of(step).is_some_and(|start| start <= self.today.as_str()),
        }
    }
}

fn start_of(step: &Value) -> Option<&str> {
    step.get("constraint")?.get("start_date")?.as_str()
}

fn tier_of(kind: &str, word: &str) -> Option<&'static str> {
    match (kind, word) {
        ("processing", "batch") => Some("batch"),
        ("service_tier", "flex") => Some("flex"),
        ("service_tier", "priority") => Some("priority"),
        ("service_tier", "fast") | ("speed", "fast") => Some("fast"),
        ("inference_geo", "us") => Some("us"),
        _ => None,
    }
}

fn add_prices(prices: &mut NamedPrices, list: &Map<String, Value>, tier: Option<&str>) {
    for (field, dimension, factor) in FIELDS {
        let Some(value) = list.get(field) else { continue };
        let base = value.as_f64().or_else(|| value.get("base")?.as_f64());
        let plain = base.map(|price| (conditional_name(dimension, tier, None), price * factor));
        prices.extend(plain);
        for step in value.get("tiers").and_then(Value::as_array).into_iter().flatten() {
            let start = step.get("start").and_then(Value::as_u64);
            if let (Some(start), Some(price)) = (start, step.get("price").and_then(Value::as_f64)) {
                prices.insert(conditional_name(dimension, tier, Some(start)), price * factor);
            }
        }
    }
}

/// Returns true if a clause of the table matches a model. Regular expressions match nothing here.
fn matches(clause: &Value, model: &str) -> bool {
    let all = |list: &Value, any: bool| {
        let mut clauses = list.as_array().into_iter().flatten();
        if any {
            clauses.any(|clause| matches(clause, model))
        } else {
            clauses.all(|clause| matches(clause, model))
        }
    };
    let Some((kind, value)) = clause.as_object().and_then(|clause| clause.iter().next()) else {
        return false;
    };
    let word = value.as_str().unwrap_or_default();
    match kind.as_str() {
        "equals" => model == word,
        "starts_with" => model.starts_with(word),
        "ends_with" => model.ends_with(word),
        "contains" => model.contains(word),
        "or" => all(value, true),
        "and" => all(value, false),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_prices_of_the_day_are_read_with_their_tiers() {
        let table = json!([{ "id": "anthropic", "models": [
            { "id": "old", "match": { "starts_with": "claude" }, "prices": [
                { "prices": { "input_mtok": 1 } },
                { "constraint": { "start_date": "2026-03-13" }, "prices":
                    { "input_mtok": { "base": 2, "tiers": [{ "start": 200000, "price": 4 }] },
                      "web_searches_kcount": 10 } },
                { "constraint": { "start_date": "2099-01-01" }, "prices":
                    { "input_mtok": 1, "output_mtok": 9 } },
            ], "price_variants": [
                { "when": { "processing": "batch" }, "prices": { "input_mtok": 0.5 } },
                { "when": { "processing": "batch", "speed": "fast" }, "prices": { "input_mtok": 9 } },
            ] },
            { "id": "claude-x", "match": { "or": [{ "equals": "claude-x" }, { "regex": ".*" }] },
              "prices": { "output_mtok": 7 } },
        ] }]);
        let table = read(&table, "2026-11-17").unwrap();
        let (entry, prices) = table.find("anthropic", "claude-y").unwrap();
        assert_eq!(entry, "old");
        let names: Vec<_> =
            prices.iter().map(|(name, price)| format!("{name} = {price}")).collect();
        assert_eq!(
            names,
            [
                "input = 2",
                "input, above 200000 = 4",
                "input, batch = 0.5",
                "output = 9",
                "search = 0.01"
            ]
        );
        assert_eq!(
            table.find("anthropic", "claude-x").unwrap().0,
            "claude-x",
            "the id comes first"
        );
        assert!(table.find("anthropic", "gpt").is_none());
        assert!(table.find("demo", "claude-x").is_none());
        assert!(read(&json!({}), "2026-11-17").is_err());
    }
}
