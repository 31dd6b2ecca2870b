//! Tests of the tables of objects.

use canon::WireFormat;
use serde_json::{Value, json};

use super::*;

fn table(origin: WireFormat) -> &'static ObjectFields {
    crate::get(origin).unwrap().traits().objects
}

fn named(origin: WireFormat, body: &Value) -> Vec<StoredObject> {
    stored_objects(table(origin), body.to_string().as_bytes(), &BodyOutline::default()).unwrap()
}

fn paths(origin: WireFormat, body: &Value) -> Vec<String> {
    named(origin, body).into_iter().map(|object| object.path).collect()
}

/// Returns every path without alternatives, with each number of keys for `**`.
fn plain_paths(path: &str) -> Vec<String> {
    path.split('.').fold(vec![String::new()], |paths, step| {
        let keys: Vec<&str> = match (step, step.strip_suffix('?')) {
            ("**", _) => vec!["", "tools", "one.two"],
            ("*", _) => vec!["any"],
            (_, Some(key)) => key.split('|').chain([""]).collect(),
            (_, None) => step.split('|').collect(),
        };
        let join = |path: &String| {
            let longer = |key: &&str| format!("{path}.{key}").trim_matches('.').to_owned();
            keys.iter().map(longer).collect::<Vec<_>>()
        };
        paths.iter().flat_map(join).collect()
    })
}

/// Builds a body with that text at a path. Every object around it is in a list, and is a
/// reference.
fn body_with(path: &str, text: &str, spell: fn(&str) -> String) -> Value {
    let keys: Vec<&str> = path.split('.').collect();
    keys.iter().enumerate().rev().fold(json!(text), |value, (depth, key)| {
        let mut object = json!({ "type": true });
        if *key == "id" {
            object["type"] = json!("item_reference");
        }
        if *key == "model" {
            object["type"] = json!("advisor_20260301");
        }
        object[spell(key)] = value;
        if depth == 0 { object } else { json!([object]) }
    })
}

#[test]
fn every_field_of_the_tables_is_found_in_every_spelling() {
    let mut found = 0;
    let tables = crate::all().map(|dialect| dialect.traits().objects);
    for table in tables {
        for field in table.fields {
            let spellings: &[fn(&str) -> String] = match table.allows_snake_case {
                true => &[|key| key.to_owned(), snake_case],
                false => &[|key| key.to_owned()],
            };
            let names = ["files/x", "rs_1:", "fileid://x", "voice_x"];
            let name = names.iter().find(|name| (field.is_name)(name)).unwrap();
            for (spell, path) in spellings
                .iter()
                .flat_map(|s| plain_paths(field.path).into_iter().map(move |p| (s, p)))
            {
                let body = body_with(&path, name, *spell);
                let objects =
                    stored_objects(table, body.to_string().as_bytes(), &BodyOutline::default())
                        .unwrap();
                assert_eq!(objects.len(), 1, "{} {body}", field.path);
                assert_eq!(objects[0].id, *name);
                assert_eq!(objects[0].not_found().kind(), ErrorKind::NotFound);
                found += 1;
            }
        }
    }
    assert!(found > 400, "{found}");
}

#[test]
fn a_body_without_the_words_is_not_parsed() {
    let tables = crate::all().map(|dialect| dialect.traits().objects);
    for table in tables {
        let common = br#"{"model" "messages" "input" "contents" "tools" "properties" "model""#;
        assert_eq!(stored_objects(table, common, &BodyOutline::default()).unwrap(), []);
        assert!(
            stored_objects(table, b"{\"file_id\" \"fileUri\"", &BodyOutline::default()).is_err()
        );
    }
}

#[test]
fn an_error_has_the_word_for_its_object() {
    for (path, kind) in [
        ("tools[0].vector_store_ids[1]", "Vector store"),
        ("messages[0].audio.id", "Audio"),
        ("cachedContent", "CachedContent"),
        ("tools[0].index_name", "Index"),
        ("id", "Object"),
    ] {
        assert_eq!(kind_of(path), kind);
    }
}

#[test]
fn names_inside_of_schemas_and_labels_of_the_caller_are_none() {
    for body in [
        json!({"user_id": "u", "session_id": "s", "trace_id": "t", "conversation_id": "c",
            "thread_id": "t", "agent_id": "a", "safety_identifier": "i", "user": "u"}),
        json!({"metadata": {"file_id": "x", "cached_content": "y"}}),
        json!({"tools": [{"type": "function", "name": "f", "function": {"name": "file_id",
            "parameters": {"default": {"file_id": "x"}}}, "parameters": {"file_ids": ["x"]},
            "input_schema": {"index_name": "x"}, "input_examples": [{"connection_id": "x"}],
            "metadata": {"dataset_id": "x"}, "headers": {"queue_name": "x"}}]}),
        json!({"tools": [{"type": "function", "function": {"parameters": {"type": "object",
            "properties": {"file_id": {"type": "string"}}, "required": ["file_id"]}}}]}),
        json!({"messages": [{"role": "tool", "tool_call_id": "c", "content": "fine fileid://x"}]}),
        json!({"messages": [{"reasoning_details": [{"id": "rs_1", "signature": "rs_1:gAAA"}]}]}),
    ] {
        for origin in [WireFormat::Chat, WireFormat::Messages, WireFormat::Responses] {
            assert_eq!(paths(origin, &body), Vec::<String>::new(), "{origin} {body}");
        }
    }
}

#[test]
fn the_documentation_lists_every_field() {
    let page = include_str!("../../../docs/compatibility.md");
    for name in object_ids!("").split('|') {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    for path in crate::all().flat_map(|dialect| dialect.traits().objects.paths()) {
        let path = path.replace(object_ids!(""), "ID");
        assert!(page.contains(&format!("`{path}`")), "{path}");
    }
}

#[test]
fn errors_are_those_of_the_format() {
    for (origin, body, path, message) in [
        (
            WireFormat::Chat,
            json!({"messages": [{"content": [{"file": {"file_id": "file_1"}}]}]}),
            "messages[0].content[0].file.file_id",
            "File with id 'file_1' not found.",
        ),
        (
            WireFormat::Messages,
            json!({"container": {"id": "c_1"}}),
            "container.id",
            "Container not found: c_1",
        ),
        (
            WireFormat::Responses,
            json!({"prompt": {"id": "pmpt_1"}}),
            "prompt",
            "Prompt with id 'pmpt_1' not found.",
        ),
        (
            WireFormat::Native,
            json!({"cached_content": "cachedContents/x"}),
            "cachedContent",
            "CachedContent not found (or permission denied)",
        ),
    ] {
        let objects = named(origin, &body);
        let shown: Vec<_> = objects.iter().map(|o| (&*o.path, &*o.message)).collect();
        assert_eq!(shown, [(path, message)], "{body}");
    }
    let long = "x".repeat(5_000);
    let object = named(WireFormat::Messages, &json!({ "container": long })).remove(0);
    assert!(object.message.len() < 100 && object.id.len() == MAX_ID_CHARS);
}

#[test]
fn files_of_the_provider_are_told_from_public_ones() {
    let uri = |uri: &str| {
        let body = json!({"contents": [{"parts": [{"fileData": {"fileUri": uri}}]}]});
        !named(WireFormat::Native, &body).is_empty()
    };
    for own in [
        "files/abc",
        "gs://bucket/x.png",
        "https://generativelanguage.googleapis.com/v1beta/files/abc",
        "HTTPS://GenerativeLanguage.googleapis.com./v1beta/files/abc",
        "https://x@generativelanguage.googleapis.com:443/v1beta/files/abc",
        "https://eu-aiplatform.googleapis.com/v1/x",
    ] {
        assert!(uri(own), "{own}");
    }
    for public in [
        "https://example.com/files/abc",
        "https://storage.googleapis.com/bucket/x.png",
        "https://example.com/?at=generativelanguage.googleapis.com",
        "https://www.youtube.com/watch?v=x",
        "data:image/png;base64,AA==",
        "file:///etc/passwd",
        "x",
    ] {
        assert!(!uri(public), "{public}");
    }
}

#[test]
fn objects_of_the_provider_for_everybody_are_none_of_the_operators() {
    let skills = |skills: Value| json!({ "container": { "skills": skills } });
    let own = json!({"type": "anthropic", "skill_id": "pptx"});
    let custom = json!({"skill_id": "pptx", "type": "custom"});
    assert_eq!(paths(WireFormat::Messages, &skills(json!([own]))), Vec::<String>::new());
    assert_eq!(
        paths(WireFormat::Messages, &skills(json!([own, custom]))),
        ["container.skills[1].skill_id"]
    );
    let twice =
        br#"{"container":{"skills":[{"type":"anthropic","type":"custom","skill_id":"s"}]}}"#;
    assert_eq!(
        stored_objects(table(WireFormat::Messages), twice, &BodyOutline::default()).unwrap().len(),
        1
    );
    let tool = |id: &str| json!({"tools": [{"environment": {"skills": [{"skill_id": id}]}}]});
    assert_eq!(paths(WireFormat::Responses, &tool("openai-spreadsheets")).len(), 0);
    assert_eq!(paths(WireFormat::Responses, &tool("skill_1")).len(), 1);
}

#[test]
fn references_tell_if_the_body_contains_their_item() {
    let message = json!({"type": "message", "id": "msg_1", "role": "user", "content": "x"});
    let reference = |id: &str| json!({"type": "item_reference", "id": id});
    let body = json!({"input": [message, reference("msg_1"), reference("msg_2"),
        {"type": "image_generation_call", "id": "ig_1", "result": "AA=="},
        {"type": "image_generation_call", "id": "ig_2"}]});
    let objects = named(WireFormat::Responses, &body);
    let shown: Vec<_> = objects.iter().map(|o| (&*o.path, o.is_contained)).collect();
    assert_eq!(shown, [("input[1].id", true), ("input[2].id", false), ("input[4].id", false)]);
}

#[test]
fn other_fields_name_nothing() {
    for (origin, body) in [
        (WireFormat::Chat, json!({"messages": [{"content": "\"file_id\": \"x\""}]})),
        (WireFormat::Chat, json!({"modalities": ["audio"], "audio": {"voice": "alloy"}})),
        (
            WireFormat::Messages,
            json!({"messages": [{"content": [{"type": "tool_use", "input": {"file_id": "x"}}]}]}),
        ),
        (WireFormat::Messages, json!({"container": null, "tools": [{"name": "container"}]})),
        (WireFormat::Responses, json!({"tools": [{"container": {"type": "auto"}}]})),
        (
            WireFormat::Native,
            json!({"contents": [{"parts": [{"functionCall": {"args": {"cachedContent": "x"}}}]}]}),
        ),
    ] {
        assert_eq!(paths(origin, &body), Vec::<String>::new(), "{body}");
    }
}

#[test]
fn ids_of_replies_and_events_are_collected_once() {
    let collect = |origin: WireFormat, request: &str, replies: &[Value]| {
        let mut made =
            MadeObjects::of_request(table(origin), request.as_bytes(), &BodyOutline::default())?;
        replies.iter().for_each(|reply| made.observe(reply.to_string().as_bytes()));
        Some(made.take())
    };
    let audio = json!({"choices": [{"message": {"audio": {"id": "audio_1"}}}]});
    let delta = json!({"choices": [{"delta": {"audio": {"id": "audio_2"}}}]});
    let asked = r#"{"modalities":["audio"]}"#;
    assert_eq!(collect(WireFormat::Chat, "{}", &[]), None);
    assert_eq!(
        collect(WireFormat::Chat, asked, &[audio.clone(), delta, audio]).unwrap(),
        ["audio_1", "audio_2"]
    );
    let start = json!({"type": "message_start", "message": {"container": {"id": "c_1"}}});
    let block = json!({"type": "content_block_start", "content_block": {
        "type": "bash_code_execution_tool_result",
        "content": {"content": [{"file_id": "file_1"}]}}});
    let end = json!({"type": "message_delta", "delta": {"container": {"id": "c_1"}}});
    let whole = json!({"container": {"id": "c_2"}, "content": [
        {"content": {"content": [{"file_id": "file_2"}]}}]});
    let asked = r#"{"tools":[{"type":"code_execution_20250825"}]}"#;
    assert_eq!(
        collect(WireFormat::Messages, asked, &[start, block, end, whole]).unwrap(),
        ["c_1", "file_1", "c_2", "file_2"]
    );
    let output = json!([{"id": "ci_1", "type": "code_interpreter_call", "container_id": "c_3"}]);
    let replies = [
        json!({"type": "response.output_text.delta", "delta": "x", "item_id": "no"}),
        json!({"type": "response.completed", "response": {"output": output}}),
        json!({"object": "response", "output": [{"id": "msg_1"}]}),
    ];
    assert_eq!(collect(WireFormat::Responses, "{}", &replies).unwrap(), ["ci_1", "c_3", "msg_1"]);
    let unstored = r#"{"store": false}"#;
    assert_eq!(collect(WireFormat::Responses, unstored, &replies).unwrap(), ["c_3"]);
    assert_eq!(collect(WireFormat::Native, "{}", &[]), None);
}
