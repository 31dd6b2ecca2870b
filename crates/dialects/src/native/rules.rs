//! Checks a native request in one pass over its bytes. A violation is answered with 400.
//!
//! If the service specification and real clients disagree, the clients win: snake_case, either
//! base64 alphabet, enum values in any case and a role on the system instruction are accepted.
//! Ranges:
//! <https://ai.google.dev/api/generate-content#v1beta.GenerationConfig>.

use canon::{ApiError, Losses};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use super::config_view::{GenerationConfigView, ImageConfigView, LimitView, ThinkingConfigView};
use super::names::{CACHE_NOT_FOUND, FOREIGN_SIGNATURE};
use super::part_view::{ObjectOnly, OneOrMany};
use super::request_view::{
    NativeContentView, NativeContentsView, NativeFunctionView, NativeRequestView, NativeToolView,
};
use super::{signatures, wire};
use crate::checks::{MAX_MODEL_BYTES, check_range, invalid_field};
use crate::dialect::{DEFAULT_MAX_SEARCHES, PatchPoints, StoredObject};
use crate::json::{self, BodyEdit};
use crate::{RequestFacts, RequestTarget};

const MAX_CONTENTS: usize = 10_000;
const MAX_MEDIA_PARTS: usize = 3_600;
const MAX_TOOLS: usize = 512;
const MAX_SAFETY_SETTINGS: usize = 32;
const MAX_STOP_BYTES: usize = 4_096;
const MAX_INTEGER: i64 = i32::MAX as i64;

/// Collects the request facts and applies the rules of the format.
pub(super) fn read_facts(target: &RequestTarget, body: &[u8]) -> Result<RequestFacts, ApiError> {
    let text = json::checked_text(body)?;
    if !text.trim_start_matches([' ', '\n', '\r', '\t']).starts_with('{') {
        return Err(ApiError::invalid("", "the body must be a JSON object"));
    }
    let view: NativeRequestView<'_> =
        serde_json::from_str(text).map_err(|_| explain::<NativeRequestView<'_>>(text, ""))?;
    let model = model(target)?;
    let mut edits = Vec::new();
    let mut losses = Losses::new();
    contents(text, &view.contents, &mut edits, &mut losses)?;
    if let Some(raw) = view.system_instruction {
        instruction(raw)?;
    }
    let offered = tools(text, view.tools, &mut edits)?;
    // Cached content may declare functions too.
    tool_config(view.tool_config, &offered, view.cached_content.is_some())?;
    safety(view.safety_settings)?;
    cached_content(view.cached_content.as_deref())?;
    let config = config(view.generation_config)?;
    let limit = limit_range(text, view.generation_config, config.as_ref(), &mut edits);
    let max_output = config.as_ref().and_then(|config| config.max_output_tokens).map(|n| n.0);
    let candidates = config.as_ref().and_then(|config| config.candidate_count.as_ref());
    Ok(RequestFacts {
        model,
        stream: target.stream,
        // Every chunk of a native stream may report usage, and the last one does.
        wants_usage: true,
        max_output_tokens: max_output.and_then(|n| u64::try_from(n).ok()),
        json_array: target.stream && target.json_array,
        candidates: candidates.and_then(|n| u32::try_from(n.0).ok()).unwrap_or(1),
        service_tier: view.service_tier.as_deref().map(wire::read_tier),
        max_searches: if offered.searches { DEFAULT_MAX_SEARCHES } else { 0 },
        patch_points: PatchPoints {
            model: view.model.map(|raw| json::range_of(text, raw)),
            limit,
            ..PatchPoints::locate(text)
        },
        edits,
        only_text: false,
        losses,
        stored_object: view.cached_content.is_some().then(|| StoredObject {
            path: "cachedContent".to_owned(),
            message: CACHE_NOT_FOUND.to_owned(),
        }),
    })
}

/// Parses again to find the path of the error.
fn explain<'a, T: Deserialize<'a>>(text: &'a str, at: &str) -> ApiError {
    let mut from = serde_json::Deserializer::from_str(text);
    let fault = json::parse_error(serde_path_to_error::deserialize::<_, T>(&mut from));
    // The message, not the path, names a duplicate or unknown field.
    let field = ["duplicate field `", "unknown field `"]
        .iter()
        .find_map(|one_of_words| fault.message().strip_prefix(one_of_words)?.split('`').next());
    let field = field.filter(|field| !fault.param().is_some_and(|path| path.ends_with(field)));
    let mut path = at.to_owned();
    for step in fault.param().into_iter().chain(field) {
        if !path.is_empty() && !step.starts_with('[') {
            path.push('.');
        }
        path.push_str(step);
    }
    ApiError::invalid(path, fault.message().to_owned())
}

/// Parses a field that has rules of its own.
fn section<'a, T: Deserialize<'a>>(raw: &'a RawValue, at: &str) -> Result<T, ApiError> {
    serde_json::from_str(raw.get()).map_err(|_| explain::<T>(raw.get(), at))
}

fn model(target: &RequestTarget) -> Result<String, ApiError> {
    let model = target.model.as_deref().unwrap_or_default();
    if model.is_empty() || model.len() > MAX_MODEL_BYTES || model.chars().any(char::is_control) {
        return Err(invalid_field(
            "model",
            &format!("must have 1 to {MAX_MODEL_BYTES} plain characters"),
        ));
    }
    Ok(model.to_owned())
}

fn contents(
    text: &str,
    contents: &NativeContentsView<'_>,
    edits: &mut Vec<BodyEdit>,
    losses: &mut Losses,
) -> Result<(), ApiError> {
    if !contents.is_present {
        return Err(invalid_field("contents", "is required"));
    }
    if contents.count == 0 {
        return Err(invalid_field("contents", "must not be empty"));
    }
    if let Some((path, why)) = &contents.first_error {
        return Err(invalid_field(path, why));
    }
    if contents.count > MAX_CONTENTS {
        return Err(invalid_field("contents", &format!("must have at most {MAX_CONTENTS} items")));
    }
    if contents.media > MAX_MEDIA_PARTS {
        return Err(invalid_field(
            "contents",
            &format!("must have at most {MAX_MEDIA_PARTS} media parts"),
        ));
    }
    for raw in &contents.signatures {
        // Most signatures go out unchanged. Only these characters mark one that needs a rewrite.
        let odd = raw.get().contains(['-', '_', '\\']) || raw.get().starts_with("\"ptt");
        let token = odd.then(|| serde_json::from_str::<Cow<'_, str>>(raw.get()).ok()).flatten();
        if let Some(other) = token.and_then(|token| signatures::for_upstream(&token)) {
            losses.add_if(other == signatures::BYPASS_SIGNATURE, "part.seal", FOREIGN_SIGNATURE);
            edits.push(BodyEdit {
                range: json::range_of(text, raw),
                replacement: json::to_json_string(&other),
            });
        }
    }
    Ok(())
}

fn instruction(raw: &RawValue) -> Result<(), ApiError> {
    const AT: &str = "systemInstruction";
    let ObjectOnly(content) = section::<ObjectOnly<NativeContentView<'_>>>(raw, AT)?;
    let Some(parts) = content.parts else {
        return Err(invalid_field("systemInstruction.parts", "is required"));
    };
    if let Some((at, field, why)) = parts.first_error {
        let dot = if field.is_empty() { "" } else { "." };
        return Err(invalid_field(&format!("{AT}.parts[{at}]{dot}{field}"), why));
    }
    if !parts.only_text {
        return Err(invalid_field("systemInstruction.parts", "must hold only text"));
    }
    Ok(())
}

/// Properties of the offered tools that other rules need.
#[derive(Default)]
struct OfferedTools<'a> {
    functions: HashSet<Cow<'a, str>>,
    /// True if a server declares functions that the request does not list.
    has_servers: bool,
    /// True if the provider may search.
    searches: bool,
}

fn tools<'a>(
    text: &str,
    raw: Option<&'a RawValue>,
    edits: &mut Vec<BodyEdit>,
) -> Result<OfferedTools<'a>, ApiError> {
    let Some(raw) = raw else { return Ok(OfferedTools::default()) };
    let OneOrMany(tools) = section::<OneOrMany<NativeToolView<'_>>>(raw, "tools")?;
    if tools.len() > MAX_TOOLS {
        return Err(invalid_field("tools", &format!("must have at most {MAX_TOOLS} items")));
    }
    let mut offered = OfferedTools::default();
    for (at, tool) in tools.iter().enumerate() {
        let path = format!("tools[{at}]");
        let (kind, value) = match tool.kinds.as_slice() {
            [(kind, value)] => (kind.as_str(), value),
            [] => return Err(invalid_field(&path, "must hold a kind of tool")),
            _ => return Err(invalid_field(&path, "must hold only one kind of tool")),
        };
        let own = format!("{path}.{kind}");
        offered.searches |=
            kind.ends_with("Search") || kind.ends_with("Maps") || kind.contains("Retrieval");
        offered.has_servers |= kind == "mcpServers";
        let functions = match kind {
            "functionDeclarations" => section::<OneOrMany<NativeFunctionView<'_>>>(value, &own)?.0,
            // The only kind whose settings are a list.
            "mcpServers" => Vec::new(),
            _ if value.get().starts_with('{') => Vec::new(),
            _ => return Err(invalid_field(&own, "must be an object")),
        };
        for (index, function) in functions.into_iter().enumerate() {
            let name = function.name.unwrap_or_default();
            let letters = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
            if name.is_empty() || name.len() > 128 || !name.bytes().all(letters) {
                let path = format!("{path}.functionDeclarations[{index}].name");
                return Err(invalid_field(&path, "must be 1 to 128 letters, digits or `_ . : -`"));
            }
            if !offered.functions.insert(name) {
                let path = format!("{path}.functionDeclarations[{index}].name");
                return Err(invalid_field(&path, "is already the name of another function"));
            }
        }
        for (key, own) in &tool.renamed {
            edits.push(BodyEdit {
                range: json::range_of(text, key),
                replacement: json::to_json_string(own),
            });
        }
    }
    Ok(offered)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfigView<'a> {
    #[serde(borrow, default, alias = "function_calling_config")]
    function_calling_config: Option<ObjectOnly<CallingConfigView<'a>>>,
    #[serde(default, alias = "retrieval_config")]
    retrieval_config: Option<ObjectOnly<RetrievalConfigView>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallingConfigView<'a> {
    #[serde(borrow, default)]
    mode: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "allowed_function_names")]
    allowed_function_names: Option<Vec<Cow<'a, str>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetrievalConfigView {
    #[serde(default, alias = "lat_lng")]
    lat_lng: Option<ObjectOnly<LatLngView>>,
}

#[derive(Deserialize)]
struct LatLngView {
    #[serde(default)]
    latitude: Option<f64>,
    #[serde(default)]
    longitude: Option<f64>,
}

fn tool_config(
    raw: Option<&RawValue>,
    offered: &OfferedTools<'_>,
    has_cache: bool,
) -> Result<(), ApiError> {
    let Some(raw) = raw else { return Ok(()) };
    let ObjectOnly(config) = section::<ObjectOnly<ToolConfigView<'_>>>(raw, "toolConfig")?;
    if let Some(ObjectOnly(calling)) = config.function_calling_config {
        const AT: &str = "toolConfig.functionCallingConfig";
        let modes = ["AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"];
        check_word(&format!("{AT}.mode"), calling.mode.as_deref(), &modes[..4], &modes)?;
        let any = calling.mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ANY"));
        let is_complete = !offered.has_servers && !has_cache;
        if any && offered.functions.is_empty() && is_complete {
            return Err(invalid_field(
                &format!("{AT}.mode"),
                "needs `functionDeclarations` to call",
            ));
        }
        for (at, name) in calling.allowed_function_names.iter().flatten().enumerate() {
            if name.is_empty() {
                let path = format!("{AT}.allowedFunctionNames");
                return Err(invalid_field(&path, "must not hold empty names"));
            }
            if is_complete && !offered.functions.contains(name) {
                let path = format!("{AT}.allowedFunctionNames[{at}]");
                return Err(invalid_field(&path, "names a function that is not in `tools`"));
            }
        }
    }
    if let Some(ObjectOnly(RetrievalConfigView { lat_lng: Some(ObjectOnly(spot)) })) =
        config.retrieval_config
    {
        const AT: &str = "toolConfig.retrievalConfig.latLng";
        check_range(&format!("{AT}.latitude"), spot.latitude, -90.0, 90.0)?;
        check_range(&format!("{AT}.longitude"), spot.longitude, -180.0, 180.0)?;
    }
    Ok(())
}

fn safety(raw: Option<&RawValue>) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    struct SafetySettingView<'a> {
        #[serde(borrow, default)]
        category: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        threshold: Option<Cow<'a, str>>,
    }
    const LISTED_CATEGORIES: [&str; 5] = [
        "HARM_CATEGORY_HARASSMENT",
        "HARM_CATEGORY_HATE_SPEECH",
        "HARM_CATEGORY_SEXUALLY_EXPLICIT",
        "HARM_CATEGORY_DANGEROUS_CONTENT",
        "HARM_CATEGORY_CIVIC_INTEGRITY",
    ];
    const OTHER_CATEGORIES: [&str; 6] = [
        "HARM_CATEGORY_UNSPECIFIED",
        "HARM_CATEGORY_IMAGE_HATE",
        "HARM_CATEGORY_IMAGE_DANGEROUS_CONTENT",
        "HARM_CATEGORY_IMAGE_HARASSMENT",
        "HARM_CATEGORY_IMAGE_SEXUALLY_EXPLICIT",
        "HARM_CATEGORY_JAILBREAK",
    ];
    const THRESHOLDS: [&str; 6] = [
        "BLOCK_NONE",
        "BLOCK_ONLY_HIGH",
        "BLOCK_MEDIUM_AND_ABOVE",
        "BLOCK_LOW_AND_ABOVE",
        "OFF",
        "HARM_BLOCK_THRESHOLD_UNSPECIFIED",
    ];
    let Some(raw) = raw else { return Ok(()) };
    let OneOrMany(settings) =
        section::<OneOrMany<ObjectOnly<SafetySettingView<'_>>>>(raw, "safetySettings")?;
    if settings.len() > MAX_SAFETY_SETTINGS {
        return Err(invalid_field(
            "safetySettings",
            &format!("must have at most {MAX_SAFETY_SETTINGS} items"),
        ));
    }
    let categories: Vec<&str> = LISTED_CATEGORIES.into_iter().chain(OTHER_CATEGORIES).collect();
    let mut seen: Vec<String> = Vec::new();
    for (at, ObjectOnly(setting)) in settings.iter().enumerate() {
        let path = |field: &str| format!("safetySettings[{at}].{field}");
        let category = setting.category.as_deref();
        let category = category.ok_or_else(|| invalid_field(&path("category"), "is required"))?;
        check_word(&path("category"), Some(category), &LISTED_CATEGORIES, &categories)?;
        let threshold = setting.threshold.as_deref();
        let threshold =
            threshold.ok_or_else(|| invalid_field(&path("threshold"), "is required"))?;
        check_word(&path("threshold"), Some(threshold), &THRESHOLDS[..5], &THRESHOLDS)?;
        let category = category.to_ascii_uppercase();
        if seen.contains(&category) {
            return Err(invalid_field(&path("category"), "is set twice"));
        }
        seen.push(category);
    }
    Ok(())
}

/// Checks a name of cached content, `cachedContents/{id}`, <https://ai.google.dev/api/caching>.
fn cached_content(name: Option<&str>) -> Result<(), ApiError> {
    let Some(name) = name else { return Ok(()) };
    let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    match name.strip_prefix("cachedContents/") {
        Some(id) if !id.is_empty() && id.len() <= 256 && id.bytes().all(letters) => Ok(()),
        _ => Err(invalid_field("cachedContent", "must have the form `cachedContents/{id}`")),
    }
}

fn config<'a>(raw: Option<&'a RawValue>) -> Result<Option<GenerationConfigView<'a>>, ApiError> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    const AT: &str = "generationConfig";
    let at = |field: &str| format!("{AT}.{field}");
    let ObjectOnly(config) = section::<ObjectOnly<GenerationConfigView<'a>>>(raw, AT)?;
    check_range(&at("temperature"), config.temperature, 0.0, 2.0)?;
    check_range(&at("topP"), config.top_p, 0.0, 1.0)?;
    check_range(&at("presencePenalty"), config.presence_penalty, -2.0, 2.0)?;
    check_range(&at("frequencyPenalty"), config.frequency_penalty, -2.0, 2.0)?;
    check_integer(&at("topK"), config.top_k.map(|n| n.0), 1, MAX_INTEGER)?;
    check_integer(&at("maxOutputTokens"), config.max_output_tokens.map(|n| n.0), 1, MAX_INTEGER)?;
    check_integer(&at("candidateCount"), config.candidate_count.map(|n| n.0), 1, 8)?;
    let stops = config.stop_sequences.as_deref().unwrap_or_default();
    if stops.len() > 5 {
        return Err(invalid_field(&at("stopSequences"), "must have at most 5 items"));
    }
    if stops.iter().any(|text| text.is_empty() || text.len() > MAX_STOP_BYTES) {
        let why = format!("must be strings of 1 to {MAX_STOP_BYTES} bytes");
        return Err(invalid_field(&at("stopSequences"), &why));
    }
    check_integer(&at("logprobs"), config.logprobs.map(|n| n.0), 0, 20)?;
    if config.logprobs.is_some() && config.response_logprobs != Some(true) {
        return Err(invalid_field(&at("logprobs"), "needs `responseLogprobs` to be true"));
    }
    answer_shape(&config)?;
    thinking(config.thinking_config.as_ref().map(|inner| &inner.0))?;
    if let Some(ObjectOnly(image)) = &config.image_config {
        image_config(image)?;
    }
    const RESOLUTIONS: [&str; 5] = [
        "MEDIA_RESOLUTION_LOW",
        "MEDIA_RESOLUTION_MEDIUM",
        "MEDIA_RESOLUTION_HIGH",
        "MEDIA_RESOLUTION_ULTRA_HIGH",
        "MEDIA_RESOLUTION_UNSPECIFIED",
    ];
    let resolution = config.media_resolution.as_deref();
    check_word(&at("mediaResolution"), resolution, &RESOLUTIONS[..3], &RESOLUTIONS)?;
    Ok(Some(config))
}

fn answer_shape(config: &GenerationConfigView<'_>) -> Result<(), ApiError> {
    let mime = config.response_mime_type.as_deref();
    let types = ["text/plain", "application/json", "text/x.enum"];
    if mime.is_some_and(|mime| !types.contains(&mime)) {
        return Err(invalid_field("generationConfig.responseMimeType", &one_of_words(&types)));
    }
    // `text/x.enum` needs the list of values, so it takes a schema as well.
    if config.response_schema.is_some() && !matches!(mime, Some("application/json" | "text/x.enum"))
    {
        let why = "needs `responseMimeType` to be `application/json`";
        return Err(invalid_field("generationConfig.responseSchema", why));
    }
    if let Some(list) = &config.response_modalities {
        const AT: &str = "generationConfig.responseModalities";
        if list.is_empty() {
            return Err(invalid_field(AT, "must not be empty"));
        }
        let mut seen = Vec::new();
        for (at, word) in list.iter().enumerate() {
            let path = format!("{AT}[{at}]");
            let Some(modality) = wire::read_modality(word) else {
                return Err(invalid_field(&path, &one_of_words(&["TEXT", "IMAGE", "AUDIO"])));
            };
            if seen.contains(&modality) {
                return Err(invalid_field(&path, "is there twice"));
            }
            seen.push(modality);
        }
    }
    Ok(())
}

fn thinking(config: Option<&ThinkingConfigView<'_>>) -> Result<(), ApiError> {
    let Some(config) = config else { return Ok(()) };
    const AT: &str = "generationConfig.thinkingConfig";
    if config.thinking_budget.is_some() && config.thinking_level.is_some() {
        return Err(invalid_field(AT, "must not hold both `thinkingBudget` and `thinkingLevel`"));
    }
    check_integer(
        &format!("{AT}.thinkingBudget"),
        config.thinking_budget.map(|n| n.0),
        -1,
        MAX_INTEGER,
    )?;
    let level = config.thinking_level.as_deref().map(str::to_ascii_uppercase);
    let known = level
        .as_deref()
        .is_none_or(|w| w == "THINKING_LEVEL_UNSPECIFIED" || wire::read_level(w).is_some());
    if !known {
        let levels = ["MINIMAL", "LOW", "MEDIUM", "HIGH"];
        return Err(invalid_field(&format!("{AT}.thinkingLevel"), &one_of_words(&levels)));
    }
    Ok(())
}

fn image_config(config: &ImageConfigView<'_>) -> Result<(), ApiError> {
    const RATIOS: [&str; 14] = [
        "1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9", "1:4", "4:1",
        "1:8", "8:1",
    ];
    const SIZES: [&str; 4] = ["512", "1K", "2K", "4K"];
    const AT: &str = "generationConfig.imageConfig";
    if config.aspect_ratio.as_deref().is_some_and(|ratio| !RATIOS.contains(&ratio)) {
        return Err(invalid_field(&format!("{AT}.aspectRatio"), &one_of_words(&RATIOS)));
    }
    if config.image_size.as_deref().is_some_and(|size| !SIZES.contains(&size)) {
        return Err(invalid_field(&format!("{AT}.imageSize"), &one_of_words(&SIZES)));
    }
    Ok(())
}

/// Returns the range for a lowered limit: the caller's own value, or an empty range behind the
/// brace of `generationConfig`. Without that object there is no range.
fn limit_range(
    text: &str,
    raw: Option<&RawValue>,
    config: Option<&GenerationConfigView<'_>>,
    edits: &mut Vec<BodyEdit>,
) -> Option<std::ops::Range<usize>> {
    let raw = raw?;
    let at = json::range_of(text, raw);
    if config.is_none() {
        // A null becomes an empty object around the range.
        let inside = at.start + 1;
        edits.push(BodyEdit { range: at.start..inside, replacement: "{".into() });
        edits.push(BodyEdit { range: inside..at.end, replacement: "}".into() });
        return Some(inside..inside);
    }
    let own: Option<LimitView<'_>> = serde_json::from_str(raw.get()).ok();
    match own.and_then(|own| own.max_output_tokens) {
        Some(own) => Some(json::range_of(text, own)),
        None => Some(at.start + 1..at.start + 1),
    }
}

fn check_integer(path: &str, value: Option<i64>, low: i64, high: i64) -> Result<(), ApiError> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(invalid_field(path, &format!("must be a whole number between {low} and {high}")))
        }
        _ => Ok(()),
    }
}

/// Checks an enum value in any case. `listed` are the values that the error names.
fn check_word(
    path: &str,
    word: Option<&str>,
    listed: &[&str],
    known: &[&str],
) -> Result<(), ApiError> {
    match word {
        Some(word) if !known.iter().any(|own| own.eq_ignore_ascii_case(word)) => {
            Err(invalid_field(path, &one_of_words(listed)))
        }
        _ => Ok(()),
    }
}

fn one_of_words(list: &[&str]) -> String {
    let list: Vec<String> = list.iter().map(|word| format!("`{word}`")).collect();
    format!("must be one of {}", list.join(", "))
}
