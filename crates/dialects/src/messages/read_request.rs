//! Reads a messages request into canon.

use canon::{ApiError, ChatRequest, JsonSchema, ResponseFormat, Role, ServiceTier, Turn};
use serde_json::Value;

use super::content::MessagesTurn;
use super::names::{EFFORT_EXTRA, ORIGIN, ROLE_EXTRA};
use super::own::{client_tools, thinking};
use super::request::{MessagesOutputFormat, MessagesRequestView};
use super::signatures::{self, ContentAuthor};
use super::{fault, read_content, read_tools};
use crate::client_tools::separate_names;
use crate::service_tier::read_request_tier;
use crate::text::BorrowedText;
use crate::wire_object::raw_value;
use crate::wire_value::OpaqueObject;

/// Reads a request that the rules have checked.
pub(super) fn read(mut view: Box<MessagesRequestView<'_>>) -> Result<Box<ChatRequest>, ApiError> {
    if view.thread.is_some() {
        // Another provider holds the history of the thread, so the reply would ignore it. Clients
        // resend the whole history on this error.
        return Err(ApiError::invalid("thread", "`thread` is not supported for this model")
            .with_code(fault::THREAD_UNSUPPORTED));
    }
    let mut chat = Box::<ChatRequest>::default();
    view.read_options(&mut chat);
    let tier = view.service_tier.as_deref().map(|word| read_request_tier(ORIGIN, word));
    let is_fast = tier.is_none() && view.is_fast();
    if is_fast {
        view.rest.take("speed");
    }
    chat.hints.service_tier = if is_fast { Some(ServiceTier::Fast) } else { tier };
    chat.model = view.model.map(|model| model.value.into_owned()).unwrap_or_default();
    let system = view.system.map(|system| read_content::read(system, ContentAuthor::Caller));
    let system = system.filter(|parts| !parts.is_empty());
    chat.turns.extend(system.map(|parts| Turn::new(Role::System, parts)));
    chat.turns.extend(view.messages.into_iter().flat_map(|list| list.0).map(read_turn));
    chat.tools = view.tools.into_iter().flat_map(|list| list.0).map(read_tools::read).collect();
    separate_names(&mut chat.tools, &mut chat.turns, |part| {
        client_tools::member_of(part).is_some()
    });
    let choice = view.tool_choice.map(|choice| read_tools::read_choice(choice, &chat.tools));
    chat.tool_choice = choice.unwrap_or_default();
    let stops = view.stop_sequences.into_iter().flatten();
    chat.sampling.stop_sequences = stops.map(BorrowedText::into_owned).collect();
    chat.sampling.max_output_tokens = view.max_tokens.map(|limit| limit.value);
    if let Some(metadata) = view.metadata {
        chat.hints.user = metadata.user_id.map(BorrowedText::into_owned);
        chat.hints.metadata = metadata.rest.to_map();
    }
    chat.extras = view.rest.to_extras(ORIGIN);
    let config = view.output_config.unwrap_or_default();
    let format = config.format.or(view.output_format);
    chat.response_format = format.map_or(ResponseFormat::Text, read_format);
    let word = config.effort.map(BorrowedText::into_owned);
    let effort = word.as_deref().and_then(thinking::level);
    chat.thinking = thinking::read(view.thinking.as_ref().map(|own| &own.value), effort);
    let mut config = config.rest.to_map();
    // Thinking that is off has no level in canon, so the effort is kept for this format only.
    if let Some(word) = word {
        match effort.is_some() && chat.thinking.level == effort {
            true => chat.extras.insert(ORIGIN, EFFORT_EXTRA, Value::from(word)),
            false => drop(config.insert("effort".to_owned(), Value::from(word))),
        }
    }
    let config = (!config.is_empty()).then_some(Value::Object(config));
    chat.extras.insert_some(ORIGIN, "output_config", config);
    let own = view.thinking.filter(|own| !thinking::is_carried(&own.value));
    chat.extras.insert_some(ORIGIN, "thinking", own.map(|own| raw_value(own.raw)));
    Ok(chat)
}

fn read_turn(turn: MessagesTurn<'_>) -> Turn {
    let role = match turn.role.as_deref() {
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => Role::User,
    };
    let parts = turn.content.map(|content| read_content::read(content, ContentAuthor::Caller));
    let mut extras = turn.rest.to_extras(ORIGIN);
    let own_role = (role == Role::System).then(|| Value::from("system"));
    extras.insert_some(ORIGIN, ROLE_EXTRA, own_role);
    Turn { role, parts: signatures::restore(parts.unwrap_or_default()), name: None, extras }
}

fn read_format(format: MessagesOutputFormat<'_>) -> ResponseFormat {
    match (format.kind.as_deref(), format.schema.map(OpaqueObject::to_value)) {
        (Some("json_schema"), Some(schema)) => ResponseFormat::Schema {
            name: None,
            description: None,
            schema: JsonSchema::new(schema),
            strict: None,
        },
        _ => ResponseFormat::Text,
    }
}
