//! Fields that name objects in a provider's account,
//! <https://platform.openai.com/docs/api-reference/chat/create>.

use crate::field_scan::Needles;
use crate::object_fields::{MadeFields, ObjectField, ObjectFields};

pub(super) static OBJECTS: ObjectFields = ObjectFields {
    fields: &[
        ObjectField::new("messages.content.file.file_id", "File"),
        ObjectField::new("messages.audio.id", "Audio"),
        ObjectField::new("audio.voice.id", "Voice"),
    ],
    needles: Needles::new(&["\"file_id\"", "\"audio\""]),
    allows_snake_case: false,
    not_found: |kind, id| format!("{kind} with id '{id}' not found."),
    is_own_url: |_| false,
    // An assistant's message names the audio that the model spoke before.
    made: MadeFields {
        triggers: &["\"audio\""],
        needles: &["\"audio\""],
        paths: &["choices.message.audio.id", "choices.delta.audio.id"],
        ..MadeFields::NONE
    },
};
