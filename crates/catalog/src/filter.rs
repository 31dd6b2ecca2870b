//! Which models of the catalog a caller wants to see.

use canon::Price;

use crate::Model;

/// Wishes a listed model has to meet, all of them. Letters match in either case; nothing is a
/// pattern; an empty wish is no wish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The whole provider id.
    pub provider: Option<String>,
    /// The whole word of the kind.
    pub model_type: Option<String>,
    /// One whole capability tag.
    pub feature: Option<String>,
    /// Text found anywhere in id, provider or description.
    pub q: Option<String>,
    /// What a token of input may cost. What is billed by the image or the like does not meet it.
    pub input_at_most: Option<Price>,
}

impl Filter {
    /// Whether the model meets every wish.
    pub fn admits(&self, model: &Model) -> bool {
        let Self { provider, model_type, feature, q, input_at_most } = self;
        wish(provider).is_none_or(|wish| same(&wish, &model.provider))
            && wish(model_type).is_none_or(|wish| same(&wish, model.kind.word()))
            && wish(feature).is_none_or(|wish| model.features.iter().any(|tag| same(&wish, tag)))
            && wish(q).is_none_or(|wish| {
                [&model.id, &model.provider, &model.about]
                    .into_iter()
                    .any(|text| text.to_lowercase().contains(&wish))
            })
            && input_at_most.is_none_or(|most| {
                let input = model.prices.input;
                input.as_picos() <= most.as_picos()
                    && (input != Price::FREE || model.prices.is_free())
            })
    }
}

/// The wish in small letters, when there is one.
fn wish(text: &Option<String>) -> Option<String> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_lowercase)
}

fn same(wish: &str, text: &str) -> bool {
    text.to_lowercase() == *wish
}
