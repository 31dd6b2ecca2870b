//! A responses request into canon.

use canon::{
    Chat, Extras, Fault, Format, Hints, Kind, Part, Role, Sampling, Schema, Seal, State, Thinking,
    Tool, ToolChoice, Turn,
};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};

use super::items::{CUSTOM, ITEM, Item, Items};
use super::names::{self, Names};
use super::seals::Side;
use super::{ME, read_tools, wire};
use crate::fields::{Fields, Path};
use crate::json;

/// What `include` asks for and canon has a place for.
pub(super) const ENCRYPTED: &str = "reasoning.encrypted_content";
/// The same for the log probabilities of the answer's text.
pub(super) const LOGPROBS: &str = "message.output_text.logprobs";

/// Reads a request. Its rules have been checked by `rules`; here only types matter.
pub(super) fn read(body: &[u8]) -> Result<Chat, Fault> {
    let text = json::text(body)?;
    let value: Value = serde_json::from_str(text)
        .map_err(|e| Fault::invalid("", format!("the body is not valid JSON: {e}")))?;
    let mut fields = Fields::new(value, &Path::Root)?;

    let model = fields.required("model")?;
    let mut turns = Turns::default();
    if let Some(text) = fields.string("instructions")? {
        turns.all.push(Turn::new(Role::System, vec![Part::text(text)]));
    }
    read_tools::read(
        fields.list("tools")?.unwrap_or_default(),
        &Path::Root.key("tools"),
        None,
        &mut turns.tools,
    )?;
    match fields.take("input") {
        None => {}
        Some(Value::String(text)) => {
            turns.all.push(Turn::new(Role::User, vec![Part::text(text)]));
        }
        Some(Value::Array(list)) => turns.read(list)?,
        Some(_) => return Err(fields.fault("input", "must be a string or a list of items")),
    }
    let (turns, tools) = turns.finish();

    let parallel = fields.flag("parallel_tool_calls")?;
    let given = fields.take("tool_choice");
    let (choice, whole) = given.as_ref().map_or((canon::Choice::Unset, true), read_tools::choice);
    let mut include = fields.strings("include")?.unwrap_or_default();
    let sampling = sampling(&mut fields, include.iter().any(|word| word == LOGPROBS))?;
    include.retain(|word| word != LOGPROBS && word != ENCRYPTED);
    let reasoning = fields.object("reasoning")?.unwrap_or_default();
    let (thinking, reasoning) = thinking(reasoning)?;
    let shape = fields.object("text")?.unwrap_or_default();
    let (format, verbosity, shape) = text_config(shape)?;
    let state = State {
        store: fields.flag("store")?,
        previous: fields.string("previous_response_id")?,
        background: fields.flag("background")?,
    };
    let user = match fields.string("safety_identifier")? {
        Some(user) => Some(user),
        None => fields.string("user")?,
    };
    let hints = Hints {
        user,
        metadata: fields.object("metadata")?.unwrap_or_default(),
        tier: fields.string("service_tier")?.as_deref().map(wire::read_tier),
        cache_key: fields.string("prompt_cache_key")?,
        verbosity,
    };
    let stream = fields.flag("stream")?.unwrap_or(false);
    let mut extras = fields.extras(ME);
    for (name, rest) in [("reasoning", reasoning), ("text", shape)] {
        if !rest.is_empty() {
            extras.put(ME, name, Value::Object(rest));
        }
    }
    if !include.is_empty() {
        extras.put(ME, "include", Value::from(include));
    }
    if let Some(given) = given.filter(|_| !whole) {
        extras.put(ME, "tool_choice", given);
    }
    Ok(Chat {
        model,
        turns,
        tools,
        choice: ToolChoice { choice, parallel },
        sampling,
        thinking,
        format,
        modalities: Vec::new(),
        canvas: canon::Canvas::default(),
        stream,
        state,
        hints,
        extras,
    })
}

fn sampling(fields: &mut Fields<'_>, included: bool) -> Result<Sampling, Fault> {
    let top = fields.count("top_logprobs")?.unwrap_or(0);
    let logprobs = (included || top > 0).then(|| u32::try_from(top).unwrap_or(0));
    Ok(Sampling {
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        max_output: fields.count("max_output_tokens")?,
        logprobs,
        ..Sampling::default()
    })
}

fn thinking(reasoning: Map<String, Value>) -> Result<(Thinking, Map<String, Value>), Fault> {
    let path = Path::Root.key("reasoning");
    let mut fields = Fields::of(reasoning, &path);
    let level = fields.string("effort")?.as_deref().and_then(canon::Level::by_word);
    let show = fields.string("summary")?;
    let show = match show {
        Some(show) => Some(show),
        None => fields.string("generate_summary")?,
    };
    let show = show.as_deref().and_then(wire::read_show);
    Ok((Thinking { level, show, ..Thinking::default() }, fields.rest()))
}

type TextConfig = (Format, Option<String>, Map<String, Value>);

fn text_config(text: Map<String, Value>) -> Result<TextConfig, Fault> {
    let path = Path::Root.key("text");
    let mut fields = Fields::of(text, &path);
    let verbosity = fields.string("verbosity")?;
    let original = fields.object("format")?.unwrap_or_default();
    let at = path.key("format");
    let mut shape = Fields::of(original.clone(), &at);
    let mut unknown = None;
    let format = match shape.string("type")?.as_deref() {
        Some("json_object") => Format::Json,
        Some("json_schema") => Format::Schema {
            name: shape.string("name")?,
            description: shape.string("description")?,
            strict: shape.flag("strict")?,
            schema: Schema::new(shape.take("schema").unwrap_or_else(|| Map::new().into())),
        },
        Some("text") | None => Format::Text,
        Some(_) => {
            unknown = Some(original);
            Format::Text
        }
    };
    let mut rest = fields.rest();
    if let Some(shape) = unknown {
        rest.insert("format".to_owned(), Value::Object(shape));
    }
    Ok((format, verbosity, rest))
}

/// Items gathered into turns: what the model did in one go is one turn, and so are the results
/// that answer it.
#[derive(Default)]
struct Turns {
    all: Vec<Turn>,
    tools: Vec<Tool>,
    /// What the last item was, to tell where a turn ends.
    last: Last,
    on_calls: HashMap<String, VecDeque<Seal>>,
    on_next: Option<Seal>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Break,
    /// A message of the model's, and whether it has fields that tell it from another one.
    Said {
        named: bool,
    },
    Did,
    Given,
}

impl Turns {
    fn read(&mut self, list: Vec<Value>) -> Result<(), Fault> {
        let root = Path::Root.key("input");
        let mut items = Items::of(Side::Caller);
        for (at, value) in list.into_iter().enumerate() {
            let path = root.item(at);
            if value.get("type").and_then(Value::as_str) == Some("additional_tools") {
                self.add_tools(value, &path)?;
                continue;
            }
            let item = items.read(value, &path)?;
            self.add(item);
        }
        Ok(())
    }

    /// Tools declared inside the conversation are tools like any other, and remember where.
    fn add_tools(&mut self, value: Value, path: &Path<'_>) -> Result<(), Fault> {
        let mut fields = Fields::new(value, path)?;
        let list = fields.list("tools")?.unwrap_or_default();
        fields.take("type");
        let mut mark = Map::new();
        mark.insert("turn".to_owned(), Value::from(self.all.len()));
        mark.insert("item".to_owned(), Value::Object(fields.rest()));
        read_tools::read(list, &path.key("tools"), Some(&Value::Object(mark)), &mut self.tools)?;
        self.last = Last::Break;
        Ok(())
    }

    fn add(&mut self, item: Item) {
        match item {
            Item::Turn(turn) => {
                self.all.push(turn);
                self.last = Last::Break;
            }
            Item::Said(mut parts) => {
                let named = parts.iter().any(|part| part.extras.get(ME, ITEM).is_some());
                // Two messages that nothing tells apart would become one.
                let fresh = match self.last {
                    Last::Break | Last::Given => true,
                    Last::Said { named: before } => !named && !before,
                    Last::Did => false,
                };
                self.seal_next(parts.first_mut());
                self.extend(Role::Assistant, fresh, parts);
                self.last = Last::Said { named };
            }
            Item::Did(mut parts) => {
                let fresh = matches!(self.last, Last::Break | Last::Given);
                let thought = matches!(parts.first(), Some(Part { kind: Kind::Thought(_), .. }));
                if !thought {
                    self.seal_next(parts.first_mut());
                }
                self.extend(Role::Assistant, fresh, parts);
                self.last = Last::Did;
            }
            Item::Given(part) => {
                let fresh = self.last != Last::Given;
                self.extend(Role::User, fresh, vec![part]);
                self.last = Last::Given;
            }
            Item::OnCall(call, seal) => {
                self.on_calls.entry(call).or_default().push_back(seal);
            }
            Item::OnNext(seal) => {
                self.lay_down();
                self.on_next = Some(seal);
            }
            Item::OnPrev(seal) => {
                self.seal_prev(seal, |kind| !matches!(kind, Kind::Thought(_)));
            }
            Item::OnCode(seal) => self.seal_prev(seal, |kind| matches!(kind, Kind::Code(_))),
        }
    }

    fn seal_prev(&mut self, seal: Seal, is_it: impl Fn(&Kind) -> bool) {
        let before = match self.last {
            Last::Said { .. } | Last::Did => self.all.last_mut(),
            Last::Break | Last::Given => None,
        };
        let part =
            before.and_then(|turn| turn.parts.iter_mut().rev().find(|part| is_it(&part.kind)));
        match part {
            Some(part) if part.seal.is_none() => part.seal = Some(seal),
            _ => {
                self.on_next = Some(seal);
                self.lay_down();
            }
        }
    }

    fn seal_next(&mut self, part: Option<&mut Part>) {
        if let Some(part) = part
            && part.seal.is_none()
            && let Some(seal) = self.on_next.take()
        {
            part.seal = Some(seal);
        }
    }

    /// A seal whose part the client left out stands alone, as it may in the format it is from.
    fn lay_down(&mut self) {
        if let Some(seal) = self.on_next.take() {
            let fresh = matches!(self.last, Last::Break | Last::Given);
            self.extend(Role::Assistant, fresh, vec![Part::text("").sealed(Some(seal))]);
            self.last = Last::Did;
        }
    }

    fn extend(&mut self, role: Role, fresh: bool, parts: Vec<Part>) {
        match self.all.last_mut() {
            Some(turn) if !fresh => turn.parts.extend(parts),
            _ => self.all.push(Turn::new(role, parts)),
        }
    }

    fn finish(mut self) -> (Vec<Turn>, Vec<Tool>) {
        self.lay_down();
        let names = Names::of(&self.tools);
        let mut custom = HashSet::new();
        for part in self.all.iter_mut().flat_map(|turn| &mut turn.parts) {
            if let Kind::ToolCall(call) = &part.kind {
                if part.seal.is_none()
                    && let Some(seals) = self.on_calls.get_mut(&call.id)
                {
                    // None is left where two calls share an id and one seal.
                    part.seal = seals.pop_front();
                }
                if call.custom {
                    custom.insert(call.id.clone());
                }
                // What the declaration tells need not be told again.
                let space = part.extras.get(ME, names::SPACE).and_then(Value::as_str);
                if space.is_some() && names.split(&call.name).0 == space {
                    part.extras = without(&part.extras, names::SPACE);
                }
            } else if let Kind::ToolResult(result) = &part.kind
                && custom.contains(&result.call)
            {
                part.extras = without(&part.extras, CUSTOM);
            }
        }
        (self.all, self.tools)
    }
}

fn without(extras: &Extras, name: &str) -> Extras {
    let mut fields = extras.for_origin(ME).cloned().unwrap_or_default();
    fields.shift_remove(name);
    Extras::of(ME, fields)
}
