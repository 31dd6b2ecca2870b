//! Metamorphic law of losses: a field that is taken out of a request or reply changes what the other
//! side is sent, or the losses. A field only the caller's format has is not sent and reported at once.
//!
//! `CORPUS=DIR cargo test -p dialects --test laws fates` tests the recorded bodies in a folder as
//! well: `FORMAT/NAME.request.json` and `FORMAT/NAME.reply.json`.

use canon::{Loss, StopEnforcer};
use dialects::Dialect;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cases::{LANE, answers, full_request, pairs, requests, stamp, target};
use crate::silent_fields::{SILENT_IN_REPLIES, SILENT_IN_REQUESTS, SilentField, is_silent};

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
    let lane = (to.origin(), to.traits().stop_support);
    let enforced =
        StopEnforcer::take_from(&mut chat, None, from.traits().stop_support, lane).is_some();
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

/// Names of losses that stand for a field of another name.
const LOSS_NAMES: &[(&str, &[&str])] = &[
    ("cache", &["cache_control", "prompt_cache_breakpoint"]),
    ("deferred", &["defer_loading"]),
    ("finish", &["incomplete_details"]),
    ("logprobs", &["include", "top_logprobs"]),
    ("searches", &["tool_usage"]),
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

/// A direction of translation: of requests or of replies.
struct Way {
    translate: Translate,
    silent: &'static [SilentField],
}

/// Takes out every field of a body in turn.
fn vary(
    pair: (&dyn Dialect, &dyn Dialect),
    case: &str,
    body: &[u8],
    way: &Way,
    found: &mut Findings,
) {
    let (source, other) = pair;
    let translate = way.translate;
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
            let whole = format!("{} {}", source.origin(), shown(&path));
            let silent = || is_silent(&whole, &path, &value, way.silent);
            if after.1 == before.1 && !is_told(&path, &value, &before.1) && !silent() {
                found.entry(line("untold")).or_insert_with(example);
            }
            told = Some(path);
            continue;
        }
        // A field is carried if the body depends on it. A thought is lost by being one, a refusal
        // by becoming text, and media by being the model's.
        let gone = |loss: &&Loss| !after.1.iter().any(|other| other.path == loss.path);
        let leaf = !value.is_object() && !value.is_array();
        let whole = |loss: &&Loss| {
            !["thought", "part.refusal", "reply.seal", "media.role"].contains(&loss.path.as_str())
        };
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

/// Named bodies of a format.
type Bodies = Vec<(String, Vec<u8>)>;

/// Returns the requests of a format: its own fixtures, those of the other formats as they are
/// translated to it, and recorded ones.
fn request_bodies(dialect: &dyn Dialect) -> Bodies {
    let others = dialects::all().filter(|other| other.origin() != dialect.origin());
    let translated = others.flat_map(|other| {
        requests(other).into_iter().filter_map(move |(name, body)| {
            let chat = other.read_request(&target(), &body).ok()?;
            let (request, _) = dialect.write_request(&chat, &LANE).ok()?;
            Some((format!("{name} of {}", other.origin()), request.body.to_vec()))
        })
    });
    let all = requests(dialect).into_iter().chain(translated);
    all.chain(corpus(dialect, ".request.json")).collect()
}

/// Returns the replies of a format in the same way.
fn reply_bodies(dialect: &dyn Dialect) -> Bodies {
    let others = dialects::all().filter(|other| other.origin() != dialect.origin());
    let translated = others.flat_map(|other| {
        answers(other).into_iter().filter_map(move |answer| {
            let (body, _) = answered(dialect, other, &answer.whole)?;
            Some((format!("{} of {}", answer.name, other.origin()), body))
        })
    });
    let own = answers(dialect).into_iter().map(|answer| (answer.name, answer.whole));
    own.chain(translated).chain(corpus(dialect, ".reply.json")).collect()
}

/// Runs the law over all bodies of all pairs.
fn check_all(way: &Way, bodies: fn(&dyn Dialect) -> Bodies) {
    let mut found = Findings::new();
    for (source, other) in pairs() {
        for (case, body) in bodies(source) {
            vary((source, other), &case, &body, way, &mut found);
        }
    }
    let list: Vec<String> = found.iter().map(|(what, case)| format!("{what}  ({case})")).collect();
    assert!(list.is_empty(), "{}\n{}", list.join("\n"), list.len());
}

#[test]
fn request_field_is_carried_or_told() {
    check_all(&Way { translate: translated, silent: SILENT_IN_REQUESTS }, request_bodies);
}

#[test]
fn reply_field_is_carried_or_told() {
    let translate: Translate = |provider, caller, body| answered(caller, provider, body);
    check_all(&Way { translate, silent: SILENT_IN_REPLIES }, reply_bodies);
}
