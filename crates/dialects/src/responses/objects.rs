//! Fields that name objects in a provider's account,
//! <https://platform.openai.com/docs/api-reference/responses/create>.

use super::content::ResponsesCodeItem;
use crate::ReplyStamp;
use crate::field_scan::FieldText;
use crate::object_fields::{MadeFields, ObjectField, ObjectFields, object_ids};
use crate::word_search::Needles;

pub(super) static OBJECTS: ObjectFields = ObjectFields {
    fields: &[
        ObjectField::of_key("prompt.id?").shown_as("prompt"),
        ObjectField::of_key("prompt.variables.*.file_id"),
        ObjectField::file_text("instructions"),
        ObjectField::file_text("input.content?.text?"),
        ObjectField::new("prompt_cache_options.comparison_response_id", "Response")
            .or_contained(|_| true),
        ObjectField::new("input.id", "Item")
            .with_words(&["\"item_reference", "\"image_generation_call", "\"reasoning\""])
            .only_if(is_reference)
            .or_contained(is_bare_reasoning),
        ObjectField::of_key("input.content|output.file_id"),
        // A call that ran code or a shell selects the container of the next one. Code of a translated
        // reply is not sent.
        ObjectField::of_key("input.environment?.container_id")
            .only_if(|container| is_providers(&container.text) || !container.parent.is(CODE_CALL)),
        // Tools, alone or in a namespace. The conversation may declare further ones.
        ObjectField::of_key(object_ids!("input|tool_choice?.tools.**.")),
        ObjectField::of_key("input?.tools.**.container"),
        ObjectField::of_key("input?.tools.**.skill_id").only_named(is_custom),
        // <https://learn.microsoft.com/azure/ai-foundry/agents/concepts/tool-catalog>: an agent of the
        // account, and an identity of it that calls other services.
        ObjectField::of_key("agent|agent_reference.name"),
        ObjectField::new("input?.tools.**.security_scheme.audience", "Identity"),
        // <https://openrouter.ai/docs/guides/routing/model-fallbacks>: models that the gateway has not
        // chosen.
        ObjectField::of_key("preset"),
        ObjectField::new("models", "Model"),
        ObjectField::new("plugins.model", "Model"),
        ObjectField::of_key(object_ids!("")),
    ],
    needles: Needles::new(&[]),
    allows_snake_case: false,
    not_found: |kind, id| format!("{kind} with id '{id}' not found."),
    is_own_url: |_| false,
    made: MadeFields {
        needles: &["\"response\""],
        // It has the whole response.
        is_in_last_event: true,
        paths: &["response?.output.environment?.container_id"],
        // Items that a later request may refer to, and the response itself.
        stored_paths: &["response?.output?.id"],
        unstored: &["\"store\":false", "\"store\": false"],
        is_needed: is_bare_reasoning,
        ..MadeFields::NONE
    },
};

const ITEM_REFERENCE: &str = "item_reference";
const GENERATED_IMAGE: &str = "image_generation_call";
const REASONING: &str = "reasoning";
const CODE_CALL: &str = "code_interpreter_call";

/// An item is named and not contained: a reference, or a picture of the provider without its data.
fn is_reference(item: &FieldText) -> bool {
    let is_bare_image = item.parent.may_be(GENERATED_IMAGE) && !item.parent.has_result();
    item.parent.may_be(ITEM_REFERENCE) || is_bare_image || is_bare_reasoning(item)
}

/// Reasoning without its encrypted content is looked up by a provider that stores answers:
/// <https://platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context>. What a
/// translation made is not sent.
fn is_bare_reasoning(item: &FieldText) -> bool {
    let is_bare = item.parent.may_be(REASONING) && !item.parent.has_encrypted_content();
    is_bare && is_providers(&item.text)
}

/// Returns true for code of a translated reply: its container is at no provider.
pub(super) fn names_own_container(item: &ResponsesCodeItem<'_>) -> bool {
    item.rest.text("container_id").is_some_and(|id| ReplyStamp::has_made(&id))
}

/// Translated replies have ids of the gateway.
fn is_providers(id: &str) -> bool {
    !ReplyStamp::has_made(id)
}

/// Skills of the provider itself are for everybody.
fn is_custom(skill: &str) -> bool {
    !skill.starts_with("openai-")
}
