//! JSON Schema of the configuration file, for editors (`portunus schema`).
//!
//! Keys and types are those that serde asks for when it reads the file, so that no key can be missing.
//! Descriptions are the comments of `config/portunus.toml`. Values with several forms have theirs here.

mod descriptions;
mod shape;

use serde_json::{Map, Value, json};

use crate::raw::RawConfig;
use descriptions::Descriptions;
use shape::{SchemaStep, ValueShape};

/// Dialect of the schema that editors support (Taplo, Even Better TOML, VS Code).
const DIALECT: &str = "http://json-schema.org/draft-07/schema#";

/// Deepest nesting of the file. A type that holds itself ends here.
const MAX_DEPTH: usize = 12;

/// Returns the JSON Schema of the configuration file.
pub fn json_schema() -> Value {
    let described = Descriptions::of_example();
    let mut schema = match value_schema(&mut Vec::new(), &described) {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.insert("$schema".to_owned(), json!(DIALECT));
    schema.insert("title".to_owned(), json!("Configuration of Portunus"));
    schema.insert(
        "definitions".to_owned(),
        json!({ "secret": secret(), "credential": credential(), "words": words() }),
    );
    Value::Object(schema)
}

fn value_schema(path: &mut Vec<SchemaStep>, described: &Descriptions) -> Value {
    let shape = shape::at::<RawConfig>(path);
    let mut schema = match shape {
        _ if path.len() > MAX_DEPTH => json!({}),
        ValueShape::Table(keys) => {
            let mut properties = Map::new();
            for key in keys {
                path.push(SchemaStep::Key(key));
                properties.insert((*key).to_owned(), value_schema(path, described));
                path.pop();
            }
            json!({ "type": "object", "additionalProperties": false, "properties": properties })
        }
        ValueShape::Entries => {
            path.push(SchemaStep::AnyKey);
            let entry = value_schema(path, described);
            path.pop();
            json!({ "type": "object", "additionalProperties": entry })
        }
        ValueShape::List => {
            path.push(SchemaStep::Item);
            let item = value_schema(path, described);
            path.pop();
            json!({ "type": "array", "items": item })
        }
        ValueShape::Words(words) => json!({ "type": "string", "enum": words }),
        ValueShape::Text => json!({ "type": "string" }),
        ValueShape::Bool => json!({ "type": "boolean" }),
        ValueShape::Count => json!({ "type": "integer", "minimum": 0 }),
        ValueShape::Number => json!({ "type": "number" }),
        ValueShape::SeveralForms => forms(path),
    };
    let description = described.of(&dotted(path));
    if let (Some(text), Some(schema)) = (description, schema.as_object_mut()) {
        // Siblings of `$ref` are ignored in this dialect.
        if let Some(reference) = schema.remove("$ref") {
            schema.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
        }
        schema.insert("description".to_owned(), json!(text));
    }
    schema
}

/// Returns a path as it is written in errors, with `*` for any name.
fn dotted(path: &[SchemaStep]) -> String {
    let steps = path.iter().map(|step| match step {
        SchemaStep::Key(key) => *key,
        SchemaStep::AnyKey => "*",
        SchemaStep::Item => "[]",
    });
    steps.collect::<Vec<_>>().join(".")
}

/// Returns the schema of a value with several forms. Everything is allowed where none is listed.
fn forms(path: &[SchemaStep]) -> Value {
    let secret = json!({ "$ref": "#/definitions/secret" });
    let words = json!({ "$ref": "#/definitions/words" });
    match dotted(path).as_str() {
        "server.secret"
        | "server.vault"
        | "server.acme.eab_key"
        | "files.access_key"
        | "files.secret_key"
        | "identity.*.client_secret"
        | "mcp.servers.*.headers.*"
        | "mcp.servers.*.bearer"
        | "mcp.servers.*.oauth.client_secret"
        | "telemetry.headers.*" => secret,
        "server.acme.contact" | "outbound.no_proxy" | "outbound.ca" | "providers.*.speaks" => words,
        "providers.*.auth" => json!({ "anyOf": [
            { "$ref": "#/definitions/credential" },
            { "type": "array", "items": { "$ref": "#/definitions/credential" } },
        ] }),
        "providers.*.paths.*" => json!({ "anyOf": [
            { "type": "string" },
            {
                "type": "object",
                "properties": { "whole": { "type": "string" }, "stream": { "type": "string" } },
                "required": ["whole", "stream"],
            },
        ] }),
        "models.*.lanes.[]" => json!({ "anyOf": [
            { "type": "string", "description": "provider/model" },
            {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "lane": { "type": "string", "description": "provider/model" },
                    "weight": { "type": "integer", "minimum": 0 },
                    "price": { "type": "object" },
                },
                "required": ["lane"],
            },
        ] }),
        "models.*.thinking" | "models.*.parameters.*" => {
            json!({ "anyOf": [{ "const": false }, { "type": "object" }] })
        }
        _ => json!({}),
    }
}

fn words() -> Value {
    json!({ "anyOf": [
        { "type": "string" },
        { "type": "array", "items": { "type": "string" } },
    ] })
}

fn secret() -> Value {
    let form = |key: &str, about: &str| {
        json!({
            "type": "object",
            "additionalProperties": false,
            "properties": { (key): { "type": "string", "description": about } },
            "required": [key],
        })
    };
    json!({ "description": "Reference to a secret", "anyOf": [
        form("env", "Name of an environment variable"),
        form("file", "Path of a file"),
        form("text", "The secret itself, for tests only"),
    ] })
}

fn credential() -> Value {
    json!({
        "description": "\"none\", or a table such as { bearer = { env = \"NAME\" } }",
        "anyOf": [{ "const": "none" }, { "type": "object", "minProperties": 1 }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validator() -> jsonschema::Validator {
        jsonschema::validator_for(&json_schema()).unwrap()
    }

    fn from_toml(text: &str) -> Value {
        serde_json::to_value(toml::from_str::<toml::Value>(text).unwrap()).unwrap()
    }

    fn example() -> &'static str {
        descriptions::EXAMPLE
    }

    #[test]
    fn the_example_fits_as_it_is_and_with_every_commented_key() {
        let validator = validator();
        let plain = from_toml(example());
        assert!(validator.is_valid(&plain), "{:?}", validator.validate(&plain));
        // A line such as `# proxy = "…"` is a key that can be switched on.
        let mut tried = 0;
        let mut section = String::new();
        for line in example().lines() {
            let bare = line.trim_start_matches(['#', ' ']);
            if bare.starts_with('[') {
                section = bare.split('#').next().unwrap_or_default().trim().to_owned();
            }
            let is_key = line.starts_with("# ") && bare.contains(" = ") && !section.is_empty();
            let text = format!("{section}\n{bare}\n");
            if let (true, Ok(value)) = (is_key, toml::from_str::<toml::Value>(&text)) {
                let value = serde_json::to_value(value).unwrap();
                assert!(validator.is_valid(&value), "{text}: {:?}", validator.validate(&value));
                tried += 1;
            }
        }
        assert!(tried > 20, "only {tried} commented keys were found");
    }

    #[test]
    fn wrong_keys_and_types_are_found() {
        let validator = validator();
        for wrong in [
            "[serve]\nlisten = \"127.0.0.1:1\"",
            "[server]\nlisten = 8080",
            "[server]\nsecret = \"plain text\"",
            "[limits]\nrunning = \"many\"",
            "[providers.a]\nbase = 1",
            "[providers.a]\nauth = \"bearer\"",
            "[models.a]\nlanes = [{ weight = 1 }]",
            "[models.a.price]\ninptu = \"1.00\"",
        ] {
            assert!(!validator.is_valid(&from_toml(wrong)), "{wrong}");
        }
    }

    #[test]
    fn a_file_with_each_key_of_the_schema_is_read_without_an_unknown_key() {
        // Every table of the schema is a table of serde, with the same keys: a wrong type is told at its
        // key, and never as an unknown one.
        fn keys(schema: &Value, path: &str, found: &mut Vec<String>) {
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
                return;
            };
            for (key, inner) in properties {
                found.push(format!("{path}{key}"));
                keys(inner, &format!("{path}{key}."), found);
            }
        }
        let mut found = Vec::new();
        keys(&json_schema(), "", &mut found);
        assert!(found.len() > 80, "{found:?}");
        for key in found {
            let read = toml::from_str::<RawConfig>(&format!("{key} = nan\n"));
            let message = read.map_or_else(|e| e.message().to_owned(), |_| String::new());
            assert!(!message.contains("unknown field"), "{key}: {message}");
        }
    }

    #[test]
    fn keys_are_described_by_the_example() {
        let schema = json_schema();
        let about = |pointer: &str| schema.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let body = about("/properties/limits/properties/body/description");
        assert_eq!(body, "as sent, and once it is decompressed");
        let buffered = about("/properties/limits/properties/money_wait/description");
        assert!(buffered.ends_with("\"0s\": never"), "{buffered}");
        let base = about("/properties/providers/additionalProperties/properties/base/description");
        assert!(base.starts_with("what comes before /v1/"), "{base}");
    }
}
