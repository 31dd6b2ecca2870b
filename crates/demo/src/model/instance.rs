//! JSON values that fit a schema, filled with words from the prompt.

use serde_json::{Map, Value};

use super::check;
use super::pattern;
use super::prompt::{Prompt, contains_words};
use super::schema::{self, JsonType};
use super::sums;
use crate::seeded_random::{self, SeededRandom};

/// Depth beyond which only required properties are filled in.
const MAX_OPTIONAL_DEPTH: usize = 4;
/// Depth beyond which nothing is built.
const MAX_DEPTH: usize = 40;
/// Maximum number of parts of a value, regardless of the schema.
const MAX_PARTS: usize = 4_000;
/// Maximum number of schema bytes visited.
const MAX_SCHEMA_BYTES: usize = 32 << 20;

/// Builds values for one request.
pub(crate) struct InstanceBuilder<'a> {
    prompt: &'a Prompt<'a>,
    root: &'a Value,
    random: SeededRandom,
    /// Index of the name in the prompt that the value is about.
    item: usize,
    /// Number of parts that may still be built.
    parts: usize,
    /// Number of schemas that may still be visited.
    fuel: u32,
}

impl<'a> InstanceBuilder<'a> {
    /// Creates a builder for values of that schema; `item` selects a name in the prompt.
    pub(crate) fn new(
        prompt: &'a Prompt<'a>,
        root: &'a Value,
        random: SeededRandom,
        item: usize,
    ) -> Self {
        // A large schema that refers to itself must not be copied thousands of times.
        let parts = (MAX_SCHEMA_BYTES / root.to_string().len().max(1)).clamp(64, MAX_PARTS);
        Self { prompt, root, random, item, parts, fuel: 20_000 }
    }

    /// Builds a value that fits.
    pub(crate) fn make(&mut self) -> Value {
        self.value(self.root, "", 0, 0)
    }

    fn value(&mut self, given: &Value, name: &str, place: usize, deep: usize) -> Value {
        // A part that is not built counts too, or an endless list of them would never end.
        let Some(left) = self.parts.checked_sub(1) else { return Value::Null };
        self.parts = left;
        if deep > MAX_DEPTH {
            return Value::Null;
        }
        let Some(schema) = schema::flat(self.root, given, &mut self.fuel) else {
            return match given {
                Value::Bool(false) => Value::Null,
                _ => Value::from(self.text(&Map::new(), name, place)),
            };
        };
        for several in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(several) {
                return self.one_of(&schema, several, branches, name, place, deep);
            }
        }
        if let Some(only) = schema.get("const") {
            return only.clone();
        }
        if let Some(Value::Array(choices)) = schema.get("enum") {
            return self.among(&schema, choices, place);
        }
        let nullable = schema::types(&schema).contains(&JsonType::Null);
        if deep > MAX_OPTIONAL_DEPTH && nullable {
            return Value::Null;
        }
        match schema::likely(&schema) {
            JsonType::Object => self.object(&schema, deep),
            JsonType::Array => self.array(&schema, name, deep),
            JsonType::String => Value::from(self.text(&schema, name, place)),
            JsonType::Integer => self.number(&schema, name, place, true),
            JsonType::Number => self.number(&schema, name, place, false),
            JsonType::Boolean => Value::Bool(place.is_multiple_of(2)),
            JsonType::Null => Value::Null,
        }
    }

    /// Returns the value of the first branch that fits the whole schema; at depth, of the branch
    /// that ends soonest.
    fn one_of(
        &mut self,
        schema: &Map<String, Value>,
        several: &str,
        branches: &[Value],
        name: &str,
        place: usize,
        deep: usize,
    ) -> Value {
        let whole = Value::Object(schema.clone());
        let mut base = schema.clone();
        base.shift_remove(several);
        let mut order: Vec<&Value> = branches.iter().take(32).collect();
        if deep > MAX_OPTIONAL_DEPTH {
            order.sort_by_key(|branch| endless(branch));
        } else {
            order.sort_by_key(|branch| branch.get("type").is_some_and(is_null));
        }
        let mut found = None;
        for branch in order {
            let Some(branch) = schema::flat(self.root, branch, &mut self.fuel) else { continue };
            let merged = Value::Object(schema::merge(base.clone(), branch));
            // The next value of the same branch may fit if the first one fits two branches.
            for place in [place, place + 1] {
                let value = self.value(&merged, name, place, deep + 1);
                if check::fits(self.root, &whole, &value) {
                    return value;
                }
                found.get_or_insert(value);
            }
        }
        found.unwrap_or(Value::Null)
    }

    /// Returns one of the listed values: the one in the prompt, if any.
    fn among(&self, schema: &Map<String, Value>, choices: &[Value], place: usize) -> Value {
        let bare = {
            let mut bare = schema.clone();
            bare.shift_remove("enum");
            Value::Object(bare)
        };
        let fitting: Vec<&Value> =
            choices.iter().filter(|choice| check::fits(self.root, &bare, choice)).collect();
        let mentioned = |choice: &&&Value| {
            choice.as_str().is_some_and(|word| {
                !word.is_empty() && contains_words(&self.prompt.lower, &word.to_lowercase())
            })
        };
        let chosen = match place {
            0 => fitting.iter().find(mentioned).or(fitting.first()),
            _ => fitting.get(place % fitting.len().max(1)),
        };
        chosen.map_or(Value::Null, |choice| (*choice).clone())
    }

    fn object(&mut self, schema: &Map<String, Value>, deep: usize) -> Value {
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required: Vec<&str> =
            schema::list(schema, "required").iter().filter_map(Value::as_str).collect();
        let least = schema::count(schema, "minProperties").unwrap_or(0);
        let most = schema::count(schema, "maxProperties").unwrap_or(usize::MAX);
        let mut fields = Map::new();
        for (name, property) in properties {
            let wanted = required.contains(&name.as_str())
                || fields.len() < least
                || (required.is_empty() && deep < MAX_OPTIONAL_DEPTH && fields.len() < most);
            if wanted {
                fields.insert(name.clone(), self.value(property, name, 0, deep + 1));
            }
        }
        let anything = Value::Object(Map::new());
        let other = schema.get("additionalProperties").unwrap_or(&anything);
        let missing = required.iter().filter(|name| !properties.contains_key(**name));
        for name in missing {
            let value = self.value(other, name, 0, deep + 1);
            fields.insert((*name).to_owned(), value);
        }
        let mut extra = 0;
        let open = properties.is_empty()
            && other.is_object()
            && schema.contains_key("additionalProperties");
        let wanted = if open && deep < MAX_OPTIONAL_DEPTH { least.max(1) } else { least };
        while fields.len() < wanted.min(most) && self.parts > 0 {
            extra += 1;
            let value = self.value(other, "value", extra, deep + 1);
            fields.insert(format!("key{extra}"), value);
        }
        Value::Object(fields)
    }

    fn array(&mut self, schema: &Map<String, Value>, name: &str, deep: usize) -> Value {
        let front = schema::list(schema, "prefixItems");
        let anything = Value::Object(Map::new());
        let rest = schema.get("items").unwrap_or(&anything);
        let least = schema::count(schema, "minItems").unwrap_or(0);
        let most = schema::count(schema, "maxItems").unwrap_or(usize::MAX);
        let closed = schema.get("items") == Some(&Value::Bool(false));
        let natural = match (front.len(), deep) {
            (0, 0..=1) => 2,
            (0, deep) => usize::from(deep <= MAX_OPTIONAL_DEPTH),
            (tuple, _) => tuple,
        };
        let wanted = natural.max(least).min(most);
        let wanted = if closed { wanted.min(front.len()) } else { wanted };
        let unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let single = name.strip_suffix('s').unwrap_or(name).to_owned();
        let mut items: Vec<Value> = Vec::new();
        let mut place = 0;
        while items.len() < wanted && self.parts > 0 && place < wanted + 64 {
            let schema = front.get(items.len()).unwrap_or(rest);
            let item = self.value(schema, &single, place, deep + 1);
            place += 1;
            // A second attempt at another index yields another value, if the schema allows one.
            let repeated = unique && items.contains(&item);
            if !repeated || (place == wanted + 64 && items.len() < least) {
                items.push(item);
            }
        }
        Value::Array(items)
    }

    fn number(
        &mut self,
        schema: &Map<String, Value>,
        name: &str,
        place: usize,
        whole: bool,
    ) -> Value {
        let fits = |number: &f64| {
            let value = in_json(*number, whole);
            check::fits(&Value::Null, &Value::Object(schema.clone()), &value)
                && (!whole || number.fract() == 0.0)
        };
        let (low, high) = schema::bounds(schema);
        let step = schema::number(schema, "multipleOf").filter(|step| *step > 0.0);
        let offset = place as f64 * if whole { 1.0 } else { 0.5 };
        let usual = usual_number(name) + offset;
        let mut tries: Vec<f64> = Vec::new();
        tries.extend(self.prompt.numbers.iter().skip(place).copied());
        tries.push(usual);
        let step = step.unwrap_or(if whole { 1.0 } else { 0.5 });
        if let Some((low, _)) = low {
            let first = (low / step).ceil() * step;
            tries.extend([first + offset * step, first + (offset + 1.0) * step, low, low + step]);
        }
        if let Some((high, _)) = high {
            let last = (high / step).floor() * step;
            tries.extend([last - offset * step, last - (offset + 1.0) * step, high]);
        }
        if let (Some((low, _)), Some((high, _))) = (low, high) {
            tries.push(f64::midpoint(low, high));
        }
        tries.extend([(usual / step).round() * step, 0.0]);
        let chosen = tries.iter().copied().find(|number| number.is_finite() && fits(number));
        in_json(chosen.unwrap_or(usual), whole)
    }

    fn text(&mut self, schema: &Map<String, Value>, name: &str, place: usize) -> String {
        let least = schema::count(schema, "minLength").unwrap_or(0).min(65_536);
        let most = schema::count(schema, "maxLength").unwrap_or(usize::MAX);
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            let mut random =
                SeededRandom::new(seeded_random::join(self.random.next_number(), place as u64));
            if let Some(text) = pattern::example(pattern, least, &mut random) {
                return text;
            }
        }
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = match of_format(format, place) {
            Some(text) => text,
            None => self.likely_text(name, about, place),
        };
        fitted(text, least, most)
    }

    /// Returns a likely text for a field of that name.
    fn likely_text(&mut self, name: &str, about: &str, place: usize) -> String {
        let key = format!("{name} {about}").to_lowercase().replace(['_', '-'], " ");
        let is = |words: &[&str]| words.iter().any(|word| key.contains(word));
        let named = self.prompt.names.get(self.item + place);
        let mut or_named = |others: &[&str]| match named {
            Some(name) => name.clone(),
            None => {
                seeded_random::nth(others, self.random.next_number().wrapping_add(place as u64))
                    .to_owned()
            }
        };
        if is(&["city", "location", "place", "town", "destination", "origin", "region"]) {
            return or_named(&["Paris", "Lisbon", "Oslo", "Kyoto"]);
        }
        if is(&["timezone", "time zone"]) || name == "tz" {
            return "Europe/Paris".to_owned();
        }
        if is(&["country"]) {
            return or_named(&["France", "Japan", "Portugal"]);
        }
        if is(&["expression", "formula", "equation"]) {
            let sum = sums::find(&self.prompt.lower);
            return sum.map_or_else(|| "1 + 1".to_owned(), |sum| sum.written);
        }
        if is(&["email", "e-mail"]) {
            return format!("ada{place}@example.com");
        }
        if is(&["url", "link", "website"]) {
            return format!("https://example.com/{}", place + 1);
        }
        if is(&["file", "path"]) {
            let mut words = self.prompt.text.split_whitespace();
            let file =
                words.find(|word| word.contains('/') || word.contains('.') && !word.ends_with('.'));
            return file
                .map_or("README.md", |word| word.trim_matches(['"', '\'', '`', ',']))
                .to_owned();
        }
        if is(&["command", "shell"]) {
            return "ls".to_owned();
        }
        if is(&["date", "day"]) {
            return "2026-01-15".to_owned();
        }
        if is(&["query", "question", "search", "prompt", "message", "content", "text", "input"]) {
            let said: String = self.prompt.text.chars().take(200).collect();
            return if said.is_empty() { "hello".to_owned() } else { said };
        }
        if is(&["tag", "keyword", "label", "category", "hobby", "skill"]) {
            const TAGS: [&str; 6] = ["curious", "kind", "harbour", "keys", "maps", "lanterns"];
            return seeded_random::nth(&TAGS, place as u64).to_owned();
        }
        if is(&["name", "person", "author", "title", "who"]) {
            return or_named(&["Ada Lovelace", "Mira Keller", "Tomas Brandt", "Yuki Mori"]);
        }
        const WORDS: [&str; 6] = ["harbour", "key", "lantern", "tide", "compass", "bridge"];
        seeded_random::nth(&WORDS, seeded_random::hash(name.as_bytes()).wrapping_add(place as u64))
            .to_owned()
    }
}

fn is_null(kind: &Value) -> bool {
    kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("null"))
}

/// Rank of a branch by its risk of endless recursion: nothing first, then plain values, then
/// references.
fn endless(branch: &Value) -> u8 {
    match (branch.get("type"), branch.get("$ref")) {
        (Some(kind), _) if is_null(kind) => 0,
        (_, Some(_)) => 3,
        (Some(Value::String(kind)), None) if kind.eq_ignore_ascii_case("object") => 2,
        (_, None) => 1,
    }
}

fn in_json(number: f64, whole: bool) -> Value {
    if whole || (number.fract() == 0.0 && number.abs() < 1e15) {
        // The comparison above keeps the number within the exact range of both types.
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

fn usual_number(name: &str) -> f64 {
    let key = name.to_lowercase();
    let table = [
        ("age", 36.0),
        ("year", 2026.0),
        ("month", 6.0),
        ("day", 15.0),
        ("hour", 12.0),
        ("temp", 21.0),
        ("lat", 48.85),
        ("lon", 2.35),
        ("lng", 2.35),
        ("price", 9.5),
        ("count", 3.0),
        ("limit", 3.0),
        ("rating", 4.0),
        ("score", 0.5),
    ];
    table.iter().find(|(word, _)| key.contains(word)).map_or(7.0, |(_, number)| *number)
}

fn of_format(format: &str, place: usize) -> Option<String> {
    let number = place % 9 + 1;
    Some(match format {
        "date-time" => format!("2026-01-0{number}T12:00:00Z"),
        "date" => format!("2026-01-0{number}"),
        "time" => format!("12:0{number}:00Z"),
        "duration" => format!("PT{number}H"),
        "email" | "idn-email" => format!("ada{number}@example.com"),
        "uri" | "url" | "uri-reference" | "iri" => format!("https://example.com/{number}"),
        "uuid" => format!("0190a5b6-7c8d-7e9f-8a0b-00000000000{number}"),
        "ipv4" => format!("192.0.2.{number}"),
        "ipv6" => format!("2001:db8::{number}"),
        "hostname" => format!("host{number}.example.com"),
        "byte" => "ZGVtbw==".to_owned(),
        _ => return None,
    })
}

/// Fits a text into the length limits.
fn fitted(text: String, least: usize, most: usize) -> String {
    let length = text.chars().count();
    if length > most {
        return text.chars().take(most).collect();
    }
    if length >= least {
        return text;
    }
    let filler = " and on".chars().cycle().take(least - length);
    text.chars().chain(filler).collect()
}
