//! The files of statements. `tests/spec/README.md` explains their fields to readers.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Everything in `tests/spec`.
pub(super) struct Specification {
    /// All statements, in the order of the files.
    pub(super) statements: Vec<Statement>,
    /// Named values that requests insert with `{{name}}`.
    pub(super) values: Map<String, Value>,
}

/// One file of statements.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementFile {
    statement: Vec<Statement>,
}

/// One sentence, the request that tries it and the expected answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statement {
    pub(super) id: String,
    pub(super) sentence: String,
    pub(super) caller: StatementCaller,
    /// Model ids. Absent: the models that the caller's format usually has.
    lanes: Option<Vec<String>>,
    /// Absent: whole and stream for conversations, whole for everything else.
    modes: Option<Vec<RunMode>>,
    /// Reason why the statement does not hold yet. Each of its runs must then fail.
    pub(super) known_gap: Option<String>,
    /// Requests before the one that is checked. Each must be answered with 2xx.
    #[serde(default)]
    pub(super) before: Vec<EarlierRequest>,
    #[serde(default)]
    pub(super) request: RequestData,
    pub(super) expect: ExpectedAnswer,
}

/// The road on which a request goes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(super) enum StatementCaller {
    Native,
    Chat,
    Responses,
    Messages,
    Images,
    Embeddings,
    /// A request that is written out with method and path.
    Http,
}

/// An answer in one piece, or as events.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum RunMode {
    Whole,
    Stream,
}

impl RunMode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Stream => "stream",
        }
    }
}

/// A request. The caller's format gives what is left out.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestData {
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
    /// JSON. Model and `stream` are added.
    pub(super) body: Option<String>,
    /// Bytes that are sent as they are.
    pub(super) raw: Option<String>,
    /// Number of spaces to send as the body.
    pub(super) padding: Option<usize>,
    /// Header that carries the key, or `none`.
    pub(super) key: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// Check that ends the polling: the request is repeated until it holds.
    pub(super) until: Option<AnswerCheck>,
}

/// A request before the one that is checked, and what it keeps of the answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EarlierRequest {
    pub(super) request: RequestData,
    /// Names for values of the answer, given by their paths.
    #[serde(default)]
    pub(super) save: BTreeMap<String, String>,
}

/// The answer that a statement promises.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedAnswer {
    pub(super) status: u16,
    /// Place that the error names.
    pub(super) at: Option<String>,
    /// Reported losses by model id. A model that is not named reports none.
    #[serde(default)]
    pub(super) loss: BTreeMap<String, Vec<String>>,
    /// Texts that headers contain.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) json: Vec<AnswerCheck>,
}

/// Path, operator and operand, as `["candidates[0].index", "is", 0]`.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Vec<Value>")]
pub(super) struct AnswerCheck {
    pub(super) path: String,
    pub(super) operator: String,
    pub(super) operand: Value,
}

impl TryFrom<Vec<Value>> for AnswerCheck {
    type Error = String;

    fn try_from(written: Vec<Value>) -> Result<Self, String> {
        let (path, operator, operand) = match written.as_slice() {
            [Value::String(path), Value::String(operator)] => (path, operator, Value::Null),
            [Value::String(path), Value::String(operator), operand] => {
                (path, operator, operand.clone())
            }
            _ => return Err(format!("not a path, an operator and a value: {written:?}")),
        };
        Ok(Self { path: path.clone(), operator: operator.clone(), operand })
    }
}

impl Specification {
    /// Reads the folder.
    pub(super) fn load() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/spec");
        let entries = std::fs::read_dir(&folder).expect("the folder of statements");
        let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
        let (mut statements, mut values) = (Vec::new(), Map::new());
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a readable file");
            if file.ends_with("values.toml") {
                values =
                    toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                continue;
            }
            let read: StatementFile =
                toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            statements.extend(read.statement);
        }
        Self { statements, values }
    }
}

impl Statement {
    /// The models on which it is tried.
    pub(super) fn lanes(&self) -> Vec<&str> {
        if let Some(lanes) = &self.lanes {
            return lanes.iter().map(String::as_str).collect();
        }
        match self.caller {
            StatementCaller::Native
            | StatementCaller::Chat
            | StatementCaller::Responses
            | StatementCaller::Messages => {
                vec!["demo-native", "demo-chat", "demo-responses", "demo-messages"]
            }
            StatementCaller::Images => vec!["demo-image", "demo-image-native", "demo-image-url"],
            StatementCaller::Embeddings => vec!["demo-embed"],
            StatementCaller::Http => vec!["demo-chat"],
        }
    }

    pub(super) fn modes(&self) -> Vec<RunMode> {
        if let Some(modes) = &self.modes {
            return modes.clone();
        }
        match self.caller {
            StatementCaller::Native
            | StatementCaller::Chat
            | StatementCaller::Responses
            | StatementCaller::Messages => vec![RunMode::Whole, RunMode::Stream],
            StatementCaller::Images | StatementCaller::Embeddings | StatementCaller::Http => {
                vec![RunMode::Whole]
            }
        }
    }
}
