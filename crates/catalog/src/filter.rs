//! Filter of the model catalog.

use canon::Price;

use crate::Model;

/// Conditions that a listed model must meet. All must hold. Case is ignored, there are no patterns,
/// and an empty condition always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFilter {
    /// Complete id or name of the provider.
    pub provider: Option<String>,
    /// Complete word of the model kind.
    pub model_type: Option<String>,
    /// One complete capability tag.
    pub feature: Option<String>,
    /// Text contained in an id or alias, the provider or the description.
    pub text: Option<String>,
    /// Maximum price of an input token. Models that are not billed by tokens do not match.
    pub max_input_price: Option<Price>,
}

impl ModelFilter {
    /// Returns true if the model meets all conditions.
    pub fn matches(&self, model: &Model) -> bool {
        let Self { provider, model_type, feature, text: q, max_input_price: input_at_most } = self;
        let provider_words = [&model.provider, &model.provider_name];
        condition(provider)
            .is_none_or(|wanted| provider_words.iter().any(|word| same(&wanted, word)))
            && condition(model_type).is_none_or(|wanted| same(&wanted, model.kind.as_str()))
            && condition(feature)
                .is_none_or(|wanted| model.features.iter().any(|tag| same(&wanted, tag)))
            && condition(q).is_none_or(|wanted| {
                [&model.id, &model.about]
                    .into_iter()
                    .chain(provider_words)
                    .chain(&model.aliases)
                    .any(|text| text.to_lowercase().contains(&wanted))
            })
            && input_at_most.is_none_or(|max| {
                let input = model.prices.input;
                input.as_picos() <= max.as_picos()
                    && (input != Price::FREE || model.prices.is_free())
            })
    }
}

/// Returns the condition in lower case; `None` if it is empty.
fn condition(text: &Option<String>) -> Option<String> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_lowercase)
}

fn same(wanted: &str, text: &str) -> bool {
    text.to_lowercase() == *wanted
}
