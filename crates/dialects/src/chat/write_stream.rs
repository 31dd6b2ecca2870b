//! Writes chat chunks from events.

use canon::{Event, Growth, Kind, Logprob, Loss, Losses, Opening, Part, Place, Thought, Usage};
use serde_json::Value;
use std::collections::BTreeMap;

use super::{ME, audio, fault, seals, wire, write_reply, write_request};
use crate::fields::{Object, matters, note_foreign};
use crate::served;
use crate::{Stamp, Writer, stretch};

/// Stream writer. Order: the role, the content, the finish reason, the usage if requested,
/// `[DONE]`.
pub(super) struct ChatWriter {
    id: String,
    /// Model name as JSON.
    model: String,
    /// Beginning of a chunk up to `choices`. It stays the same for the whole stream.
    head: String,
    wants_usage: bool,
    wants_logprobs: bool,
    usage: Option<Usage>,
    /// Service tier, once known.
    tier: Option<&'static str>,
    places: BTreeMap<Place, Slot>,
    spoken: BTreeMap<u32, Spoken>,
    broken: bool,
    losses: Losses,
}

/// State of the part in a slot.
enum Slot {
    Text { offset: usize, seal: Option<canon::Seal> },
    Refusal,
    Thought { index: usize, sealed: bool },
    Call { index: usize, id: String, custom: bool },
    Whole { thought: Option<Box<(Part, usize)>> },
}

/// Output of one candidate so far.
#[derive(Default)]
struct Spoken {
    begun: bool,
    chars: usize,
    /// True if the text so far does not end with a newline.
    midline: bool,
    calls: usize,
    details: usize,
    /// SDKs identify entries of a streamed list by `index`.
    notes: usize,
    images: usize,
    /// True if audio was written. A message holds only one clip.
    aloud: bool,
    /// Signatures of text spans. They are written at the end, so that they do not split the text.
    sealed: Vec<(String, canon::Seal)>,
}

/// Returns the entry with the next `index` of its list.
fn numbered(mut entry: Value, count: &mut usize) -> Value {
    if let Value::Object(fields) = &mut entry {
        fields.insert("index".to_owned(), Value::from(*count));
    }
    *count += 1;
    entry
}

/// Writes a value as JSON.
fn write_json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    // Writing to a `Vec` cannot fail, and every value here is serializable.
    let _ = serde_json::to_writer(out, value);
}

fn head(id: &str, created: i64, model: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-{id}\",\"object\":\"chat.completion.chunk\",\
         \"created\":{created},\"model\":{model}"
    )
}

impl ChatWriter {
    pub(super) fn new(chat: &canon::Chat, stamp: &Stamp) -> Self {
        let options = chat.extras.get(ME, "stream_options");
        let wants_usage = options
            .and_then(|options| options.get("include_usage"))
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let model = Value::from(chat.model.as_str()).to_string();
        Self {
            id: stamp.id.clone(),
            head: head(&stamp.id, stamp.created, &model),
            model,
            wants_usage,
            wants_logprobs: chat.sampling.logprobs.is_some(),
            usage: None,
            tier: None,
            places: BTreeMap::new(),
            spoken: BTreeMap::new(),
            broken: false,
            losses: Losses::new(),
        }
    }

    /// Writes the beginning of a chunk up to `choices`.
    fn open_chunk(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head.as_bytes());
        if let Some(tier) = self.tier {
            out.extend_from_slice(format!(",\"service_tier\":\"{tier}\"").as_bytes());
        }
        out.extend_from_slice(b",\"choices\":[");
    }

    fn close_chunk(&self, usage: Option<&Usage>, out: &mut Vec<u8>) {
        out.push(b']');
        match usage {
            _ if !self.wants_usage => {}
            None => out.extend_from_slice(b",\"usage\":null"),
            Some(usage) => {
                out.extend_from_slice(b",\"usage\":");
                out.extend_from_slice(wire::write_usage(usage).to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"}\n\n");
    }

    fn delta(
        &mut self,
        candidate: u32,
        delta: &str,
        chances: Option<&[Logprob]>,
        out: &mut Vec<u8>,
    ) {
        self.begin(candidate, out);
        self.raw_delta(candidate, delta, chances, "null", out);
    }

    fn raw_delta(
        &self,
        candidate: u32,
        delta: &str,
        chances: Option<&[Logprob]>,
        finish: &str,
        out: &mut Vec<u8>,
    ) {
        self.open_choice(candidate, out);
        out.extend_from_slice(delta.as_bytes());
        self.close_choice(chances, finish, out);
    }

    /// Writes the beginning of a chunk up to `delta` of its only choice.
    fn open_choice(&self, candidate: u32, out: &mut Vec<u8>) {
        self.open_chunk(out);
        out.extend_from_slice(b"{\"index\":");
        write_json(&candidate, out);
        out.extend_from_slice(b",\"delta\":");
    }

    fn close_choice(&self, chances: Option<&[Logprob]>, finish: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"logprobs\":");
        match chances {
            None => out.extend_from_slice(b"null"),
            Some(list) => write_json(&write_reply::write_logprobs(list), out),
        }
        out.extend_from_slice(b",\"finish_reason\":");
        out.extend_from_slice(finish.as_bytes());
        out.push(b'}');
        self.close_chunk(None, out);
    }

    /// Writes the first chunk of a candidate. SDKs need it before any other.
    fn begin(&mut self, candidate: u32, out: &mut Vec<u8>) {
        let spoken = self.spoken.entry(candidate).or_default();
        if !spoken.begun {
            spoken.begun = true;
            let delta = "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}";
            self.raw_delta(candidate, delta, None, "null", out);
        }
    }

    fn open(&mut self, place: Place, opening: Opening, out: &mut Vec<u8>) {
        self.begin(place.candidate, out);
        let spoken = self.spoken.entry(place.candidate).or_default();
        let slot = match opening {
            Opening::Text => Slot::Text { offset: spoken.chars, seal: None },
            Opening::Refusal => Slot::Refusal,
            Opening::Thought => {
                spoken.details += 1;
                Slot::Thought { index: spoken.details - 1, sealed: false }
            }
            Opening::ToolCall { id, name, custom } => {
                let index = spoken.calls;
                spoken.calls += 1;
                let (kind, text) =
                    if custom { ("custom", "input") } else { ("function", "arguments") };
                let inner = Object::new().set("name", name).set(text, "");
                let call = Object::new().set("index", index).set("id", id.as_str());
                let call: Value = call.set("type", kind).set(kind, inner).into();
                self.delta(place.candidate, &format!("{{\"tool_calls\":[{call}]}}"), None, out);
                Slot::Call { index, id, custom }
            }
            Opening::Whole(part) => self.whole(place, *part, out),
        };
        self.places.insert(place, slot);
    }

    /// Writes a part that arrives in one event.
    fn whole(&mut self, place: Place, part: Part, out: &mut Vec<u8>) -> Slot {
        note_foreign(&part.extras, ME, "part", &mut self.losses);
        let none = Slot::Whole { thought: None };
        let text = match &part.kind {
            Kind::Text { text, .. } => text.clone(),
            Kind::Code(code) => {
                self.block(place, &write_request::fenced(&code.language, &code.code))
            }
            Kind::CodeOutcome(outcome) => {
                self.block(place, &write_request::fenced("", &outcome.output))
            }
            Kind::Thought(_) => {
                // The signature follows later, so the thought is written when the part closes.
                let spoken = self.spoken.entry(place.candidate).or_default();
                spoken.details += 1;
                let index = spoken.details - 1;
                return Slot::Whole { thought: Some(Box::new((part, index))) };
            }
            Kind::Media(media) => {
                let spoken = self.spoken.entry(place.candidate).or_default();
                match (write_reply::write_image(media), audio::write(media)) {
                    (None, Some(audio)) if !spoken.aloud => {
                        spoken.aloud = true;
                        let delta = format!("{{\"audio\":{audio}}}");
                        self.delta(place.candidate, &delta, None, out);
                    }
                    (Some(image), _) => {
                        let image = numbered(image, &mut spoken.images);
                        let delta = format!("{{\"images\":[{image}]}}");
                        self.delta(place.candidate, &delta, None, out);
                    }
                    (None, _) => self.losses.add("reply.media", write_reply::MEDIALESS),
                }
                return none;
            }
            Kind::Search(_) => {
                self.losses.add("reply.search", "the chat format shows sources but not queries");
                return none;
            }
            Kind::Refusal(_) | Kind::ToolCall(_) | Kind::ToolResult(_) | Kind::Foreign { .. } => {
                self.losses.add("reply.part", "a part only the provider's format has");
                return none;
            }
        };
        self.text(place, &text, out);
        none
    }

    /// Formats a text on lines of its own.
    fn block(&mut self, place: Place, text: &str) -> String {
        let midline = self.spoken.entry(place.candidate).or_default().midline;
        format!("{}{text}\n", if midline { "\n" } else { "" })
    }

    fn text(&mut self, place: Place, text: &str, out: &mut Vec<u8>) {
        let spoken = self.spoken.entry(place.candidate).or_default();
        spoken.chars += text.chars().count();
        if !text.is_empty() {
            spoken.midline = !text.ends_with('\n');
        }
        // Hot path, once per token: avoids intermediate values.
        self.begin(place.candidate, out);
        self.open_choice(place.candidate, out);
        out.extend_from_slice(b"{\"content\":");
        write_json(text, out);
        out.push(b'}');
        self.close_choice(None, "null", out);
    }

    fn grow(&mut self, place: Place, growth: Growth, out: &mut Vec<u8>) {
        let delta = match (growth, self.places.get(&place)) {
            (Growth::Text(text), Some(Slot::Text { .. })) => {
                self.text(place, &text, out);
                return;
            }
            (Growth::Text(text), Some(Slot::Refusal)) => {
                format!("{{\"refusal\":{}}}", Value::from(text))
            }
            (Growth::Text(text), Some(Slot::Thought { index, .. })) => {
                let details = seals::text_piece(&text, *index);
                let text = Value::from(text);
                format!("{{\"reasoning_content\":{text},\"reasoning_details\":{details}}}")
            }
            (Growth::Text(text), Some(Slot::Call { index, custom, .. })) => {
                let text = Value::from(text);
                let inner = if *custom {
                    format!("\"custom\":{{\"input\":{text}}}")
                } else {
                    format!("\"function\":{{\"arguments\":{text}}}")
                };
                format!("{{\"tool_calls\":[{{\"index\":{index},{inner}}}]}}")
            }
            (Growth::Citation(citation), Some(Slot::Text { offset, .. })) => {
                let note = write_reply::write_citation(&citation, *offset);
                let spoken = self.spoken.entry(place.candidate).or_default();
                let note = numbered(note, &mut spoken.notes);
                format!("{{\"annotations\":[{note}]}}")
            }
            (Growth::Logprobs(list), _) => {
                if self.wants_logprobs {
                    self.delta(place.candidate, "{\"content\":\"\"}", Some(&list), out);
                }
                return;
            }
            (Growth::Extra { origin, name, value: _ }, _) => {
                self.losses.add_if(
                    origin != ME && matters(&name),
                    &format!("part.{name}"),
                    "only another format has this field",
                );
                return;
            }
            (Growth::Text(_) | Growth::Citation(_), _) => return,
        };
        self.delta(place.candidate, &delta, None, out);
    }

    fn seal(&mut self, place: Place, seal: &canon::Seal, out: &mut Vec<u8>) {
        let delta = match self.places.get_mut(&place) {
            Some(Slot::Thought { index, sealed }) => {
                *sealed = true;
                format!("{{\"reasoning_details\":{}}}", seals::seal_piece(seal, *index))
            }
            Some(Slot::Whole { thought: Some(thought) }) => {
                thought.0.seal = Some(seal.clone());
                return;
            }
            Some(Slot::Call { index, id, custom }) => match seals::write_on_call(seal) {
                Some(extra) => {
                    let extra = Value::from(extra);
                    // SDKs read `function` of each delta, so it is always present.
                    let inner = if *custom {
                        "\"custom\":{\"input\":\"\"}"
                    } else {
                        "\"function\":{\"arguments\":\"\"}"
                    };
                    format!(
                        "{{\"tool_calls\":[{{\"index\":{index},{inner},\"extra_content\":{extra}}}]}}"
                    )
                }
                None => {
                    let spoken = self.spoken.entry(place.candidate).or_default();
                    spoken.details += 1;
                    let detail = seals::write_loose(seal, id, spoken.details - 1);
                    format!("{{\"reasoning_details\":[{detail}]}}")
                }
            },
            // Written at the end, when the whole text is known.
            Some(Slot::Text { seal: own, .. }) => {
                *own = Some(seal.clone());
                return;
            }
            Some(Slot::Refusal | Slot::Whole { thought: None }) | None => {
                self.losses.add("reply.seal", write_reply::SEALLESS);
                return;
            }
        };
        self.delta(place.candidate, &delta, None, out);
    }

    /// Writes the signatures of the text after all of it was sent.
    fn seal_text(&mut self, candidate: u32, out: &mut Vec<u8>) {
        let spoken = self.spoken.entry(candidate).or_default();
        let (first, sealed) = (spoken.details, std::mem::take(&mut spoken.sealed));
        spoken.details += sealed.len();
        for (index, (id, seal)) in (first..).zip(sealed) {
            let detail = seals::write_loose(&seal, &id, index);
            self.delta(candidate, &format!("{{\"reasoning_details\":[{detail}]}}"), None, out);
        }
    }

    fn close(&mut self, place: Place, out: &mut Vec<u8>) {
        let delta = match self.places.remove(&place) {
            Some(Slot::Whole { thought: Some(thought) }) => {
                let (part, index) = *thought;
                let Kind::Thought(thought) = &part.kind else { return };
                let Thought { text, redacted: _ } = thought;
                let detail = seals::write_detail(&part, thought, index);
                let shown = if text.is_empty() {
                    String::new()
                } else {
                    format!("\"reasoning_content\":{},", Value::from(text.as_str()))
                };
                format!("{{{shown}\"reasoning_details\":[{detail}]}}")
            }
            Some(Slot::Text { offset, seal: Some(seal) }) => {
                let spoken = self.spoken.entry(place.candidate).or_default();
                let id = stretch::name(offset, spoken.chars.saturating_sub(offset));
                spoken.sealed.push((id, seal));
                return;
            }
            Some(
                Slot::Text { seal: None, .. }
                | Slot::Thought { .. }
                | Slot::Refusal
                | Slot::Call { .. }
                | Slot::Whole { thought: None },
            )
            | None => return,
        };
        self.delta(place.candidate, &delta, None, out);
    }
}

impl Writer for ChatWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Begin { created, .. } => {
                if let Some(created) = created {
                    self.head = head(&self.id, created, &self.model);
                }
                self.begin(0, out);
            }
            Event::Open(place, opening) => self.open(place, opening, out),
            Event::Grow(place, growth) => self.grow(place, growth, out),
            Event::Sealed(place, seal) => self.seal(place, &seal, out),
            Event::Close(place) => self.close(place, out),
            Event::Count(usage) => {
                self.usage = Some(self.usage.unwrap_or_default().merged(usage));
            }
            Event::Aside { origin: ME, candidate, name, value } => {
                if name == wire::MESSAGE {
                    self.delta(candidate.unwrap_or_default(), &value.to_string(), None, out);
                }
            }
            Event::Aside { origin, name, value, .. } => {
                let tier = served::aside(origin, &name, &value, ME, &mut self.losses);
                self.tier = tier.or(self.tier);
            }
            Event::End { candidate, finish } => {
                self.begin(candidate, out);
                self.seal_text(candidate, out);
                let word = write_reply::finish_word(Some(&finish)).to_string();
                self.raw_delta(candidate, "{}", None, &word, out);
            }
            Event::Fault(fault) => {
                self.broken = true;
                let (_, body) = fault::write(&fault);
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&body);
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        if !self.broken {
            if self.wants_usage {
                let usage = self.usage.unwrap_or_default();
                self.open_chunk(out);
                self.close_chunk(Some(&usage), out);
            }
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
        std::mem::take(&mut self.losses).into_vec()
    }
}
