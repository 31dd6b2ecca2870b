//! Price form: one field per plain price, and JSON for structured prices.

use canon::Price;
use catalog::{ImagePrice, LongPromptPrices, ModelPrices, TierPrices, TokenRates};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::text_area;
use crate::form::{FieldErrors, FormFields};
use crate::shared_fields::number_input;

/// Plain prices: field name in the API, and label.
pub(super) const PRICE_FIELDS: [(&str, &str); 20] = [
    ("price.input", "Input"),
    ("price.output", "Output"),
    ("price.cached_input", "Input from a cache"),
    ("price.cache_write", "Written to a cache"),
    ("price.cache_write_long", "Written for long"),
    ("price.thinking", "Thinking"),
    ("price.input_audio", "Audio input"),
    ("price.output_audio", "Audio output"),
    ("price.input_image", "Image input"),
    ("price.output_image", "Image output"),
    ("price.tool_image", "Images of a tool"),
    ("price.cache_storage", "Kept in a cache for an hour"),
    ("price.per_request", "A request"),
    ("price.per_request_low", "A request, few results"),
    ("price.per_request_medium", "A request, some results"),
    ("price.per_second", "A second"),
    ("price.per_image", "An image"),
    ("price.per_search", "A search"),
    ("price.per_file_search", "A file search"),
    ("price.per_code_run", "A run of code"),
];
/// The first entries are per million tokens; the others are per unit.
const PER_MILLION_COUNT: usize = 12;
/// Field for the structured prices as JSON, and their names.
const FURTHER_FIELD: &str = "price.further";
const STRUCTURED_PRICES: [&str; 8] =
    ["pictures", "long", "batch", "flex", "priority", "fast", "us", "fast_us"];

/// Prices as JSON, as the API accepts them.
pub(super) fn to_json(prices: &ModelPrices) -> Map<String, Value> {
    // Named one by one, so that a new price cannot be forgotten here.
    let ModelPrices {
        version: _,
        input,
        output,
        cached_input,
        cache_write,
        cache_write_long,
        thinking,
        input_audio,
        output_audio,
        input_image,
        output_image,
        per_request,
        per_request_low,
        per_request_medium,
        per_second,
        per_image,
        images: pictures,
        per_search,
        per_file_search,
        per_code_run,
        tool_image,
        cache_storage,
        long_prompts: long,
        tiers: services,
    } = prices;
    let million = |price: Price| Value::from(price.to_per_million());
    let unit = |price: Price| Value::from(price.to_per_unit());
    let all = [
        ("input", Some(million(*input))),
        ("output", Some(million(*output))),
        ("cached_input", cached_input.map(million)),
        ("cache_write", cache_write.map(million)),
        ("cache_write_long", cache_write_long.map(million)),
        ("thinking", thinking.map(million)),
        ("input_audio", input_audio.map(million)),
        ("output_audio", output_audio.map(million)),
        ("input_image", input_image.map(million)),
        ("output_image", output_image.map(million)),
        ("per_request", per_request.map(unit)),
        ("per_request_low", per_request_low.map(unit)),
        ("per_request_medium", per_request_medium.map(unit)),
        ("per_second", per_second.map(unit)),
        ("per_image", per_image.map(unit)),
        ("per_search", per_search.map(unit)),
        ("per_file_search", per_file_search.map(unit)),
        ("per_code_run", per_code_run.map(unit)),
        ("tool_image", tool_image.map(million)),
        ("cache_storage", cache_storage.map(million)),
        ("pictures", (!pictures.is_empty()).then(|| pictures.iter().map(image_json).collect())),
        ("long", (!long.is_empty()).then(|| long.iter().map(long_json).collect())),
    ];
    let mut written: Map<String, Value> =
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    for TierPrices { tier: service, rates, long_prompts: long } in services {
        let mut value = json!({ "rates": rates_json(rates) });
        if let (false, Some(fields)) = (long.is_empty(), value.as_object_mut()) {
            fields.insert("long".to_owned(), long.iter().map(long_json).collect());
        }
        written.insert(service.as_str().to_owned(), value);
    }
    written
}

fn rates_json(rates: &TokenRates) -> Value {
    let TokenRates { input, output, cached_input, cache_write, cache_write_long } = *rates;
    let all = [
        ("input", Some(input)),
        ("output", Some(output)),
        ("cached_input", cached_input),
        ("cache_write", cache_write),
        ("cache_write_long", cache_write_long),
    ];
    let listed = all.into_iter().filter_map(|(name, price)| Some((name, price?.to_per_million())));
    listed.map(|(name, price)| (name.to_owned(), Value::from(price))).collect()
}

fn long_json(long: &LongPromptPrices) -> Value {
    let LongPromptPrices { above_tokens: above, rates } = long;
    json!({ "above": above, "rates": rates_json(rates) })
}

fn image_json(picture: &ImagePrice) -> Value {
    let ImagePrice { size, quality, price, tokens } = picture;
    let all = [
        ("size", size.clone().map(Value::from)),
        ("quality", quality.clone().map(Value::from)),
        ("price", (*price > Price::FREE).then(|| Value::from(price.to_per_unit()))),
        ("tokens", (*tokens > 0).then(|| Value::from(*tokens))),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Form fields of prices.
pub(super) fn price_fields(price: &Value) -> Vec<(&'static str, String)> {
    let of = |(name, _): (&'static str, _)| {
        let own = name.strip_prefix("price.").unwrap_or_default();
        let text = price.get(own).and_then(Value::as_str).unwrap_or_default();
        (name, text.to_owned())
    };
    let parts: Map<String, Value> = STRUCTURED_PRICES
        .into_iter()
        .filter_map(|part| Some((part.to_owned(), price.get(part)?.clone())))
        .collect();
    let further = if parts.is_empty() {
        String::new()
    } else {
        serde_json::to_string_pretty(&parts).unwrap_or_default()
    };
    PRICE_FIELDS.map(of).into_iter().chain([(FURTHER_FIELD, further)]).collect()
}

/// Reads the prices of a form; `None` if it is empty.
pub(super) fn parse(fields: &FormFields) -> Result<Option<Map<String, Value>>, FieldErrors> {
    let mut price = Map::new();
    let further = match fields.get(FURTHER_FIELD).trim() {
        "" => Map::new(),
        text => serde_json::from_str(text).map_err(|why| {
            let mut errors = FieldErrors::default();
            errors.add(FURTHER_FIELD, format!("This is no JSON object: {why}."));
            errors
        })?,
    };
    for (name, _) in PRICE_FIELDS {
        let text = fields.get(name).trim();
        if let (Some(own), false) = (name.strip_prefix("price."), text.is_empty()) {
            price.insert(own.to_owned(), Value::from(text));
        }
    }
    price.extend(further);
    Ok((!price.is_empty()).then_some(price))
}

/// Names of the fields that can show an error.
pub(super) fn field_names() -> Vec<&'static str> {
    PRICE_FIELDS.into_iter().map(|(name, _)| name).chain(["price"]).collect()
}

pub(super) fn render(fields: &FormFields, errors: &FieldErrors) -> Markup {
    let input = |field| number_input(field, "decimal", fields, errors);
    let wrong = errors.get("price").or(errors.get(FURTHER_FIELD));
    let mut own = FieldErrors::default();
    if let Some(why) = wrong {
        own.add(FURTHER_FIELD, why);
    }
    html! {
        fieldset {
            legend { "USD per million tokens" }
            div.row { @for one in PRICE_FIELDS.into_iter().take(PER_MILLION_COUNT) { (input(one)) } }
        }
        fieldset {
            legend { "USD for one" }
            div.row { @for one in PRICE_FIELDS.into_iter().skip(PER_MILLION_COUNT) { (input(one)) } }
        }
        details open[wrong.is_some()] {
            summary { "Long prompts, service tiers, pictures" }
            (text_area(
                (FURTHER_FIELD, "Further prices, as JSON"),
                fields.get(FURTHER_FIELD),
                "An object of long, batch, flex, priority, fast and pictures, as in the \
                 configuration file.",
                &own,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{ModelDirectory, PriceList};

    #[test]
    fn directory_prices_round_trip_through_the_form() {
        let mut seen = 0;
        for model in ModelDirectory::embedded().models() {
            let price = Value::Object(to_json(&model.prices));
            let back =
                parse(&FormFields::prefilled(price_fields(&price))).unwrap().map(Value::Object);
            assert_eq!(back, Some(price.clone()), "{}", model.id);
            let list: PriceList = serde_json::from_value(price).unwrap();
            assert_eq!(list.prices().unwrap(), *model.prices, "{}", model.id);
            seen += 1;
        }
        assert!(seen > 10);
    }
}
