//! Fields that name objects in a provider's account,
//! <https://platform.openai.com/docs/api-reference/responses/create>.

use crate::field_scan::{FieldText, Needles};
use crate::object_fields::{MadeFields, ObjectField, ObjectFields};

const FILE: &str = "File";
const CONTAINER: &str = "Container";
const SKILL: &str = "Skill";

pub(super) static OBJECTS: ObjectFields = ObjectFields {
    fields: &[
        ObjectField::new("conversation", "Conversation"),
        ObjectField::new("conversation.id", "Conversation").shown_as("conversation"),
        ObjectField::new("prompt", "Prompt"),
        ObjectField::new("prompt.id", "Prompt").shown_as("prompt"),
        ObjectField::new("prompt.variables.*.file_id", FILE),
        ObjectField::new("input.id", "Item").only_if(is_reference).or_contained(is_bare_reasoning),
        ObjectField::new("input.content.file_id", FILE),
        ObjectField::new("input.output.file_id", FILE),
        // A call that ran code or a shell selects the container of the next one.
        ObjectField::new("input.container_id", CONTAINER),
        ObjectField::new("input.environment.container_id", CONTAINER),
        ObjectField::new("tools.vector_store_ids", "Vector store"),
        ObjectField::new("tools.container", CONTAINER),
        ObjectField::new("tools.container.file_ids", FILE),
        ObjectField::new("tools.environment.container_id", CONTAINER),
        ObjectField::new("tools.environment.file_ids", FILE),
        ObjectField::new("tools.environment.skills.skill_id", SKILL).only_if(is_custom),
        ObjectField::new("tools.input_image_mask.file_id", FILE),
        ObjectField::new("tools.tunnel_id", "Tunnel"),
        // The same tools, declared in the conversation.
        ObjectField::new("input.tools.vector_store_ids", "Vector store"),
        ObjectField::new("input.tools.container", CONTAINER),
        ObjectField::new("input.tools.container.file_ids", FILE),
        ObjectField::new("input.tools.environment.container_id", CONTAINER),
        ObjectField::new("input.tools.environment.file_ids", FILE),
        ObjectField::new("input.tools.environment.skills.skill_id", SKILL).only_if(is_custom),
        ObjectField::new("input.tools.input_image_mask.file_id", FILE),
        ObjectField::new("input.tools.tunnel_id", "Tunnel"),
    ],
    needles: Needles::new(&[
        "\"conversation\"",
        "\"prompt\"",
        "\"file_id\"",
        "_ids\"",
        "\"container",
        "\"skill_id\"",
        "\"tunnel_id\"",
        ITEM_REFERENCE,
        GENERATED_IMAGE,
        "\"reasoning\"",
    ]),
    allows_snake_case: false,
    not_found: |kind, id| format!("{kind} with id '{id}' not found."),
    is_own_url: |_| false,
    made: MadeFields {
        needles: &["\"response\""],
        // It has the whole response.
        is_in_last_event: true,
        paths: &[
            "output.container_id",
            "output.environment.container_id",
            "response.output.container_id",
            "response.output.environment.container_id",
        ],
        // Items that a later request may refer to.
        stored_paths: &["output.id", "response.output.id"],
        unstored: &["\"store\":false", "\"store\": false"],
        is_needed: is_bare_reasoning,
        ..MadeFields::NONE
    },
};

const ITEM_REFERENCE: &str = "item_reference";
const GENERATED_IMAGE: &str = "image_generation_call";
const REASONING: &str = "reasoning";

/// An item is named and not contained: a reference, or a picture of the provider without its data.
fn is_reference(item: &FieldText) -> bool {
    let is_bare_image = item.parent.may_be(GENERATED_IMAGE) && !item.parent.has_result();
    item.parent.may_be(ITEM_REFERENCE) || is_bare_image || is_bare_reasoning(item)
}

/// Reasoning without its encrypted content is looked up by a provider that stores answers:
/// <https://platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context>.
fn is_bare_reasoning(item: &FieldText) -> bool {
    item.parent.may_be(REASONING) && !item.parent.has_encrypted_content()
}

/// Skills of the provider itself are for everybody.
fn is_custom(skill: &FieldText) -> bool {
    !skill.text.starts_with("openai-")
}
