//! Metamorphic law of losses: a field that is taken out of a request or reply changes what the other
//! side is sent, or the losses. A field only the caller's format has is not sent and reported at once.
//!
//! `CORPUS=DIR cargo test -p dialects --test laws fates` tests the recorded bodies in a folder as
//! well: `FORMAT/NAME.request.json` and `FORMAT/NAME.reply.json`.

use canon::Loss;
use dialects::{Dialect, StopEnforcer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cases::{LANE, answers, full_request, pairs, requests, stamp, target};

/// The body for the other side and the losses.
type Outcome = (Vec<u8>, Vec<Loss>);

/// A set of fields: a path in which `[text]` is every item of that `type`, and `[]` every other item.
type FieldPath = Vec<String>;

/// Returns the step to an item of a list.
fn item_step(item: &Value) -> String {
    let word = item.get("type").or_else(|| item.get("role")).and_then(Value::as_str);
    format!("[{}]", word.unwrap_or_default())
}

/// Lists all paths below a value, each after the ones it is inside of.
fn paths(value: &Value, here: &mut FieldPath, found: &mut Vec<FieldPath>) {
    let mut visit = |step: String, inner: &Value| {
        here.push(step);
        if !found.contains(here) {
            found.push(here.clone());
        }
        paths(inner, here, found);
        here.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, inner)| visit(name.clone(), inner)),
        Value::Array(list) => list.iter().for_each(|inner| visit(item_step(inner), inner)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Takes out all values at a path, or only the first one. Returns one of them.
fn take_out(body: &mut Value, path: &[String], all: bool) -> Option<Value> {
    let (step, rest) = path.split_first()?;
    match body {
        Value::Object(map) if rest.is_empty() => map.shift_remove(step),
        Value::Object(map) => take_out(map.get_mut(step)?, rest, all),
        Value::Array(list) => {
            let mut taken = None;
            let mut at = 0;
            while at < list.len() && (all || taken.is_none()) {
                if item_step(&list[at]) != *step {
                    at += 1;
                } else if rest.is_empty() {
                    taken = Some(list.remove(at));
                } else {
                    taken = take_out(&mut list[at], rest, all).or(taken);
                    at += 1;
                }
            }
            taken
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Writes a path as text.
fn shown(path: &[String]) -> String {
    path.join(".").replace(".[", "[")
}

/// Translates a request; `None` if either side refuses it.
fn translated(from: &dyn Dialect, to: &dyn Dialect, body: &[u8]) -> Option<Outcome> {
    from.read_facts(&target(), body).ok()?;
    let mut chat = from.read_request(&target(), body).ok()?;
    let ends = format!("{:?} {:?}", chat.sampling.stop_sequences, chat.sampling.max_output_tokens);
    let lane = (to.origin(), to.stop_support());
    let enforced = StopEnforcer::take_from(&mut chat, None, from.stop_support(), lane).is_some();
    let (request, losses) = to.write_request(&chat, &LANE).ok()?;
    let mut body = format!("{}\n", request.path).into_bytes();
    body.extend(request.body.to_vec());
    if enforced {
        body.extend(ends.into_bytes());
    }
    Some((body, losses))
}

/// Translates a reply; `None` if it is refused.
fn answered(caller: &dyn Dialect, provider: &dyn Dialect, body: &[u8]) -> Option<Outcome> {
    let reply = provider.read_reply(body).ok()?;
    Some(caller.write_reply(reply, &full_request(), &stamp()))
}

/// A translation between two formats: the one that wrote the body and the other one.
type Translate = fn(&dyn Dialect, &dyn Dialect, &[u8]) -> Option<Outcome>;

/// Broken cases: the field, and the case it was first seen in.
type Findings = BTreeMap<String, String>;

/// Fields that tag or identify an object, or repeat another field. Without them it says the same.
const SILENT_KEYS: &[&str] = &[
    "bytes",
    "call_id",
    "completed_at",
    "created",
    "created_at",
    "createTime",
    "id",
    "index",
    "model",
    "modelVersion",
    "object",
    "responseId",
    "role",
    "status",
    "system_fingerprint",
    "tokenId",
    "tool_use_id",
    "toolType",
    "type",
];

/// Ends of paths that may be neither carried nor told, with the reason.
const SILENT_PATHS: &[(&str, &str)] = &[
    ("property_ordering", "equal to the order of the properties"),
    ("reasoning.enabled", "an effort says it"),
    ("n", "1 is the default"),
    ("stream", "`false` is the default; the path of a native request says it"),
    ("is_error", "`false` is the default"),
    ("arguments", "`{}` is the default"),
    ("[function_call].namespace", "equal to the name"),
    ("allowedFunctionNames", "names all tools"),
    ("fileData.mimeType", "the server of the URL says it"),
    ("fileData.mime_type", "the server of the URL says it"),
    ("file_data.mime_type", "the server of the URL says it"),
    ("[document].source.media_type", "`text/plain` is the only one"),
    ("responseJsonSchema.title", "a name for people"),
    ("responses text.format", "text is the default"),
    ("native generationConfig", "text is the default"),
    ("responseModalities", "text is the default"),
    ("additionalProperties", "the messages format closes every object"),
    ("strict", "the other side enforces every schema, or all of them by its mode"),
    ("format.mode", "`explicit` is the only mode"),
    ("prompt_cache_breakpoint.mode", "`explicit` is the only mode"),
    ("input_audio.format", "`wav` is the default"),
    ("detail", "`auto` is the default"),
    ("message.reasoning", "repeats `reasoning_details`"),
    ("reasoning_content", "repeats `reasoning_details`"),
    ("reasoning_details", "repeats `reasoning_content`"),
    ("reasoning_details[reasoning.text].format", "describes the signature"),
    ("tools[function].parameters.properties.timezone", "a tool that the choice excludes"),
    ("chat tools[function]", "tools that the choice excludes are not offered"),
    ("stream_options", "the gateway writes the stream"),
    ("include", "encrypted thinking is always requested"),
    ("top_logprobs", "means nothing without log probabilities"),
    ("parallel_tool_calls", "`true` is the default"),
    ("responses tool_choice", "`auto` is the default"),
    ("tool_choice", "`none` without tools says nothing"),
    ("store", "`false` is the default"),
    ("background", "`false` is the default"),
    ("tool_choice.mode", "`auto` is the default"),
    ("responseMimeType", "follows from the schema"),
    ("includeThoughts", "`false` is the default"),
    ("thinkingBudget", "-1 is the default"),
    ("messages thinking", "adaptive thinking without an effort is the default elsewhere"),
    ("response_modalities", "text is the default"),
    ("return_code", "without it the run counts as failed"),
    ("[compaction].content", "the block is lost as `part`"),
    ("native contents[model].parts[].text", "an unsigned thought is lost as `thought`"),
    ("[apply_patch_call_output].output", "the item is lost as `part`"),
    ("[shell_call_output].output", "the item is lost as `part`"),
    ("[tool_search_call].execution", "the item is lost as `part`"),
    ("[tool_search_output].execution", "the item is lost as `part`"),
    // Replies.
    ("audio.expires_at", "the provider's storage is not the caller's"),
    ("service_tier", "the standard tier"),
    ("encrypted_index", "a token for the provider"),
    ("encrypted_content", "a token for the provider"),
    ("page_age", "describes a hit of the search"),
    ("[web_search_result].title", "describes a hit of the search"),
    ("[web_search_result_location].title", "the same source has it"),
    ("[url_citation].title", "the same source has it"),
    ("executableCode.language", "Python is the only one"),
    ("parts[].thoughtSignature", "the gateway keeps it, or the part before has it"),
    ("action.queries", "repeats `query`"),
    ("action.query", "repeats `queries`"),
    ("action.url", "an opened page is not a search"),
    ("[output_text].text", "an empty text"),
    ("responses output[message]", "an empty text"),
    ("responses incomplete_details", "`status` says it"),
    ("responses instructions", "repeats the request"),
    ("responses metadata", "repeats the request"),
    ("responses reasoning", "repeats the request"),
    ("responses billing", "concerns the account of the gateway"),
    ("responses frequency_penalty", "repeats the request"),
    ("responses presence_penalty", "repeats the request"),
    ("responses previous_response_id", "repeats the request"),
    ("responses prompt_cache_retention", "repeats the request"),
    ("responses output[web_search_call]", "a search without its queries says nothing"),
    ("responses temperature", "repeats the request"),
    ("responses text", "repeats the request"),
    ("responses tools", "repeats the request"),
    ("responses top_p", "repeats the request"),
    ("responses truncation", "repeats the request"),
    ("responses tool_usage", "counts of the provider's tools"),
    ("tool_usage.image_gen", "counts of the provider's tools"),
];

/// Returns true if a field says nothing that another format could carry.
fn is_silent(format: &str, path: &[String], value: &Value) -> bool {
    let empty = match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Null | Value::Bool(_) => false,
    };
    let key = path.last().map_or("", String::as_str);
    // The name of a tool that the provider runs follows from its type. Its calls are lost as parts.
    let hosted = |step: &String| step.starts_with("[server_tool_use") || step.contains("_20");
    let hosted = path.iter().any(hosted) && (key == "name" || path.contains(&"input".to_owned()));
    // The gateway writes the usage of a reply from its own count.
    let counts = path.first().is_some_and(|first| ["usage", "usageMetadata"].contains(&&**first));
    let whole = format!("{format} {}", shown(path));
    let listed = SILENT_PATHS.iter().any(|(end, _)| {
        whole.strip_suffix(end).is_some_and(|front| {
            front.is_empty() || front.ends_with(['.', ' ', ']']) || end.starts_with(['[', '_'])
        })
    });
    empty || counts || hosted || SILENT_KEYS.contains(&key) || listed
}

/// Names of losses that stand for a field of another name.
const LOSS_NAMES: &[(&str, &[&str])] = &[
    ("cache", &["cache_control", "prompt_cache_breakpoint"]),
    ("seal", &["signature", "thoughtSignature", "encrypted_content"]),
    ("citation", &["citations", "annotations"]),
    ("citations", &["annotations"]),
    ("quote", &["cited_text"]),
    ("show", &["summary", "display", "includeThoughts"]),
];

/// Returns true if a loss names the field or an object around it.
fn names(loss: &Loss, path: &[String]) -> bool {
    let last = loss.path.rsplit('.').next().unwrap_or_default();
    let others = LOSS_NAMES.iter().filter(|(name, _)| *name == last).flat_map(|(_, keys)| *keys);
    path.iter().any(|step| step == last)
        || others.into_iter().any(|key| path.iter().any(|step| step == key))
}

/// Returns true if a loss names the field, an object around it, or the kind of the item. Each name
/// is told once, also if other fields have it too.
fn is_told(path: &[String], value: &Value, losses: &[Loss]) -> bool {
    let kinds =
        ["part", "reply.part", "tools", "thought", "thought.seal", "part.search", "reply.search"];
    losses
        .iter()
        .any(|loss| names(loss, path) || (value.is_object() && kinds.contains(&loss.path.as_str())))
}

/// Takes out every field of a body in turn.
fn vary(
    pair: (&dyn Dialect, &dyn Dialect),
    case: &str,
    body: &[u8],
    translate: Translate,
    found: &mut Findings,
) {
    let (source, other) = pair;
    let Some(before) = translate(source, other, body) else { return };
    let Ok(whole) = serde_json::from_slice::<Value>(body) else { return };
    let mut all_paths = Vec::new();
    paths(&whole, &mut Vec::new(), &mut all_paths);
    let without = |path: &[String], all: bool| {
        let mut less = whole.clone();
        let value = take_out(&mut less, path, all).filter(|value| !value.is_null())?;
        Some((value, translate(source, other, &serde_json::to_vec(&less).unwrap())?))
    };
    let mut told: Option<FieldPath> = None;
    for path in all_paths {
        // The loss of a whole object includes its fields.
        if told.as_ref().is_some_and(|told| path.starts_with(told)) {
            continue;
        }
        let Some((value, after)) = without(&path, true) else { continue };
        let line = |what: &str| {
            format!("{} {} > {}: {what}", source.origin(), shown(&path), other.origin())
        };
        let example =
            || format!("{case} {}", value.to_string().chars().take(60).collect::<String>());
        if after.0 == before.0 {
            let silent = || is_silent(source.origin().as_str(), &path, &value);
            if after.1 == before.1 && !is_told(&path, &value, &before.1) && !silent() {
                found.entry(line("untold")).or_insert_with(example);
            }
            told = Some(path);
            continue;
        }
        // A field is carried if the body depends on it. A thought is lost by being one, and a
        // refusal is lost by becoming text.
        let gone = |loss: &&Loss| !after.1.iter().any(|other| other.path == loss.path);
        let leaf = !value.is_object() && !value.is_array();
        let whole =
            |loss: &&Loss| !["thought", "part.refusal", "reply.seal"].contains(&loss.path.as_str());
        let told = before.1.iter().filter(gone).filter(whole);
        for loss in told.filter(|loss| leaf && names(loss, &path)) {
            found
                .entry(line(&format!("carried, but told as {}", loss.path)))
                .or_insert_with(example);
        }
    }
}

fn corpus(dialect: &dyn Dialect, ending: &str) -> Vec<(String, Vec<u8>)> {
    let Some(folder) = std::env::var_os("CORPUS") else { return Vec::new() };
    let folder = PathBuf::from(folder).join(dialect.origin().as_str());
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(ending)))
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn request_field_is_carried_or_told() {
    let mut found = Findings::new();
    for (from, to) in pairs() {
        for (case, body) in requests(from).into_iter().chain(corpus(from, ".request.json")) {
            vary((from, to), &case, &body, translated, &mut found);
        }
    }
    let list: Vec<String> = found.iter().map(|(what, case)| format!("{what}  ({case})")).collect();
    assert!(list.is_empty(), "{}\n{}", list.join("\n"), list.len());
}

#[test]
fn reply_field_is_carried_or_told() {
    let mut found = Findings::new();
    for (caller, provider) in pairs() {
        let own = answers(provider).into_iter().map(|answer| (answer.name, answer.whole));
        for (case, body) in own.chain(corpus(provider, ".reply.json")) {
            let flip: Translate = |provider, caller, body| answered(caller, provider, body);
            vary((provider, caller), &case, &body, flip, &mut found);
        }
    }
    let list: Vec<String> = found.iter().map(|(what, case)| format!("{what}  ({case})")).collect();
    assert!(list.is_empty(), "{}\n{}", list.join("\n"), list.len());
}
