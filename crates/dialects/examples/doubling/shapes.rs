//! Requests that repeat one thing many times.

use canon::WireFormat::{self, Chat, Messages, Native, Responses};

/// A body that repeats something that many times.
pub(crate) struct HostileShape {
    pub(crate) name: &'static str,
    pub(crate) from: WireFormat,
    /// The most it can repeat within the limits of its format.
    pub(crate) most: usize,
    pub(crate) body: fn(usize) -> String,
}

fn repeated(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(",")
}

const TURN: &str = r#"{"role":"user","content":"x"}"#;

fn in_chat(more: &str) -> String {
    format!(r#"{{"model":"m","messages":[{TURN}]{more}}}"#)
}

fn in_messages(more: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":9,"messages":[{TURN}]{more}}}"#)
}

fn in_responses(more: &str) -> String {
    format!(r#"{{"model":"m","input":"x"{more}}}"#)
}

fn in_native(more: &str) -> String {
    format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":"x"}}]}}]{more}}}"#)
}

fn unknown(count: usize) -> String {
    format!(",{}", repeated(count, |n| format!(r#""unknown_{n}":1"#)))
}

fn known_last(count: usize) -> String {
    let known = r#","temperature":1,"top_p":1,"metadata":{"a":"b"},"user":"u","stream":false"#;
    format!("{known}{}", unknown(count))
}

fn calls_in_chat(count: usize) -> String {
    let calls = repeated(count, |n| {
        format!(r#"{{"id":"c{n}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}"#)
    });
    let results =
        repeated(count, |n| format!(r#"{{"role":"tool","tool_call_id":"c{n}","content":"x"}}"#));
    format!(
        r#"{{"model":"m","messages":[{TURN},{{"role":"assistant","tool_calls":[{calls}]}},{results}]}}"#
    )
}

fn calls_in_messages(count: usize) -> String {
    let calls = repeated(count, |n| {
        format!(r#"{{"type":"tool_use","id":"c{n}","name":"f","input":{{}}}}"#)
    });
    let results = repeated(count, |n| {
        format!(r#"{{"type":"tool_result","tool_use_id":"c{n}","content":"x"}}"#)
    });
    format!(
        r#"{{"model":"m","max_tokens":9,"messages":[{TURN},{{"role":"assistant","content":[{calls}]}},{{"role":"user","content":[{results}]}}]}}"#
    )
}

fn calls_in_responses(count: usize) -> String {
    let calls = repeated(count, |n| {
        format!(
            r#"{{"type":"custom_tool_call","call_id":"c{n}","name":"f","input":"x"}},{{"type":"custom_tool_call_output","call_id":"c{n}","output":"x"}}"#
        )
    });
    format!(r#"{{"model":"m","input":[{calls}]}}"#)
}

fn calls_in_native(count: usize) -> String {
    let calls = repeated(count, |n| {
        format!(
            r#"{{"functionCall":{{"id":"c{n}","name":"f","args":{{}}}},"thoughtSignature":"c2ln{:04}"}}"#,
            n % 10_000
        )
    });
    let results = repeated(count, |n| {
        format!(r#"{{"functionResponse":{{"id":"c{n}","name":"f","response":{{}}}}}}"#)
    });
    format!(
        r#"{{"contents":[{{"role":"user","parts":[{{"text":"x"}}]}},{{"role":"model","parts":[{calls}]}},{{"role":"user","parts":[{results}]}}]}}"#
    )
}

fn nameless_calls_in_native(count: usize) -> String {
    let calls = repeated(count, |_| r#"{"functionCall":{"name":"f","args":{}}}"#.to_owned());
    let results =
        repeated(count, |_| r#"{"functionResponse":{"name":"f","response":{}}}"#.to_owned());
    format!(
        r#"{{"contents":[{{"role":"user","parts":[{{"text":"x"}}]}},{{"role":"model","parts":[{calls}]}},{{"role":"user","parts":[{results}]}}]}}"#
    )
}

/// Returns requests of shapes that a hostile caller would choose.
pub(crate) fn hostile_shapes() -> Vec<HostileShape> {
    let shape = |name, from, most, body| HostileShape { name, from, most, body };
    let many = usize::MAX;
    vec![
        shape("fields", Chat, many, |n| in_chat(&unknown(n))),
        shape("fields", Messages, many, |n| in_messages(&unknown(n))),
        shape("fields", Responses, many, |n| in_responses(&unknown(n))),
        shape("fields", Native, many, |n| in_native(&unknown(n))),
        shape("fields behind known ones", Chat, many, |n| in_chat(&known_last(n))),
        shape("fields behind known ones", Responses, many, |n| {
            in_responses(&known_last(n).replace(r#","metadata":{"a":"b"}"#, ""))
        }),
        shape("fields of a part", Chat, many, |n| {
            let part = format!(r#"{{"type":"text","text":"x"{}}}"#, unknown(n));
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#)
        }),
        shape("fields of a part", Native, many, |n| {
            format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":"x"{}}}]}}]}}"#, unknown(n))
        }),
        shape("fields of the settings", Native, many, |n| {
            in_native(&format!(r#","generationConfig":{{"topK":3{}}}"#, unknown(n)))
        }),
        shape("messages with a field each", Chat, 9_000, |n| {
            let turns = repeated(n, |n| {
                format!(r#"{{"role":"user","content":"x","unknown_{n}":1,"name":"u{n}"}}"#)
            });
            format!(r#"{{"model":"m","messages":[{turns}]}}"#)
        }),
        shape("messages", Messages, many, |n| {
            let turns = repeated(n, |_| TURN.to_owned());
            format!(r#"{{"model":"m","max_tokens":9,"messages":[{turns}]}}"#)
        }),
        shape("parts", Chat, many, |n| {
            let parts = repeated(n, |_| r#"{"type":"text","text":"x"}"#.to_owned());
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{parts}]}}]}}"#)
        }),
        shape("parts", Native, many, |n| {
            let parts = repeated(n, |_| r#"{"text":"x"}"#.to_owned());
            format!(r#"{{"contents":[{{"role":"user","parts":[{parts}]}}]}}"#)
        }),
        shape("thoughts", Native, many, |n| {
            let parts = repeated(n, |_| r#"{"text":"some thought","thought":true}"#.to_owned());
            format!(
                r#"{{"contents":[{{"role":"user","parts":[{{"text":"x"}}]}},{{"role":"model","parts":[{parts}]}},{{"role":"user","parts":[{{"text":"x"}}]}}]}}"#
            )
        }),
        shape("tools", Chat, many, |n| {
            let tools = repeated(n, |n| {
                format!(r#"{{"type":"function","function":{{"name":"f{n}","unknown_{n}":1}}}}"#)
            });
            in_chat(&format!(r#","tools":[{tools}]"#))
        }),
        shape("tools", Responses, many, |n| {
            let tools = repeated(n, |n| {
                format!(r#"{{"type":"function","name":"f{n}","parameters":{{}},"strict":false}}"#)
            });
            in_responses(&format!(r#","tools":[{tools}]"#))
        }),
        shape("tools in a namespace", Responses, many, |n| {
            let tools = repeated(n, |n| {
                format!(r#"{{"type":"function","name":"f{n}","parameters":{{}},"strict":false}}"#)
            });
            let space =
                format!(r#"{{"type":"namespace","name":"s","description":"d","tools":[{tools}]}}"#);
            in_responses(&format!(r#","tools":[{space}]"#))
        }),
        shape("allowed tools", Chat, many, |n| {
            let tools =
                repeated(n, |n| format!(r#"{{"type":"function","function":{{"name":"f{n}"}}}}"#));
            let choice = format!(
                r#"{{"type":"allowed_tools","allowed_tools":{{"mode":"auto","tools":[{tools}]}}}}"#
            );
            in_chat(&format!(r#","tools":[{tools}],"tool_choice":{choice}"#))
        }),
        shape("calls", Chat, 9_000, calls_in_chat),
        shape("calls", Messages, many, calls_in_messages),
        shape("calls", Responses, 4_500, calls_in_responses),
        shape("calls", Native, many, calls_in_native),
        shape("calls without ids", Native, many, nameless_calls_in_native),
        shape("references", Responses, 4_500, |n| {
            let items = repeated(n, |n| {
                format!(
                    r#"{{"id":"m{n}","role":"user","content":"x"}},{{"type":"item_reference","id":"m{n}"}}"#
                )
            });
            format!(r#"{{"model":"m","input":[{items}]}}"#)
        }),
        shape("files", Messages, many, |n| {
            let blocks =
                repeated(n, |n| format!(r#"{{"type":"container_upload","file_id":"f{n}"}}"#));
            format!(
                r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":[{blocks}]}}]}}"#
            )
        }),
        shape("stop texts", Chat, many, |n| {
            in_chat(&format!(r#","stop":[{}]"#, repeated(n, |n| format!("\"s{n}\""))))
        }),
        shape("stop texts", Messages, many, |n| {
            let stops = repeated(n, |n| format!("\"s{n}\""));
            in_messages(&format!(r#","stop_sequences":[{stops}]"#))
        }),
        shape("one field again and again", Chat, many, |n| {
            in_chat(&format!(",{}", repeated(n, |_| r#""unknown":1"#.to_owned())))
        }),
        shape("nested lists", Chat, many, |n| {
            let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
            in_chat(&format!(r#","unknown":[{}]"#, repeated(n / 20, |_| deep.clone())))
        }),
        shape("a schema", Chat, many, |n| {
            let fields = repeated(n, |n| format!(r#""p{n}":{{"type":"string"}}"#));
            let names = repeated(n, |n| format!("\"p{n}\""));
            let schema = format!(
                r#"{{"type":"object","properties":{{{fields}}},"required":[{names}],"additionalProperties":false}}"#
            );
            in_chat(&format!(
                r#","tools":[{{"type":"function","function":{{"name":"f","strict":true,"parameters":{schema}}}}}]"#
            ))
        }),
        shape("a schema", Native, many, |n| {
            let fields = repeated(n, |n| format!(r#""p{n}":{{"type":"STRING"}}"#));
            let names = repeated(n, |n| format!("\"p{n}\""));
            let schema = format!(
                r#"{{"type":"OBJECT","properties":{{{fields}}},"required":[{names}],"propertyOrdering":[{names}]}}"#
            );
            in_native(&format!(
                r#","tools":[{{"functionDeclarations":[{{"name":"f","parameters":{schema}}}]}}]"#
            ))
        }),
    ]
}
