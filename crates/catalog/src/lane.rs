//! Lanes: one provider that serves one model.

use std::fmt;

/// One provider that serves one model, with the provider's own name for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    /// Id of the provider.
    pub provider: String,
    /// The provider's name for the model. It may contain slashes and colons.
    pub model: String,
    /// Share of traffic among lanes of equal preference.
    pub weight: u32,
}

/// Error of parsing a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneError {
    /// No slash between provider and model.
    NoSlash,
    /// Nothing before the first slash.
    NoProvider,
    /// Nothing after the first slash.
    NoModel,
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a lane is written \"provider/model\"",
            Self::NoProvider => "a lane needs a provider before the slash",
            Self::NoModel => "a lane needs the provider's model after the slash",
        })
    }
}

impl std::error::Error for LaneError {}

impl Lane {
    /// Creates a lane of weight one.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), weight: 1 }
    }

    /// Parses `provider/model`. The first slash separates the two: provider ids never contain a
    /// slash, model names often do.
    pub fn parse(text: &str) -> Result<Self, LaneError> {
        let (provider, model) = text.split_once('/').ok_or(LaneError::NoSlash)?;
        if provider.is_empty() {
            return Err(LaneError::NoProvider);
        }
        if model.is_empty() {
            return Err(LaneError::NoModel);
        }
        Ok(Self::new(provider, model))
    }

    /// Returns `provider/model`, as used in configuration, headers and receipts.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    /// Returns the lane with another weight.
    #[must_use]
    pub fn with_weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_slash_separates_provider_and_model() {
        let lane = Lane::parse("together/moonshotai/Kimi-K3:free").unwrap();
        assert_eq!(
            (lane.provider.as_str(), lane.model.as_str()),
            ("together", "moonshotai/Kimi-K3:free")
        );
        assert_eq!(lane.weight, 1);
    }

    #[test]
    fn a_lane_survives_formatting_and_parsing() {
        for text in ["a/b", "bedrock/anthropic.claude:0", "x/y/z", "x//"] {
            let lane = Lane::parse(text).unwrap();
            assert_eq!(lane.name(), text);
            assert_eq!(lane.to_string(), text);
            assert_eq!(Lane::parse(&lane.name()), Ok(lane));
        }
    }

    #[test]
    fn an_incomplete_lane_is_refused() {
        assert_eq!(Lane::parse("gpt"), Err(LaneError::NoSlash));
        assert_eq!(Lane::parse("/gpt"), Err(LaneError::NoProvider));
        assert_eq!(Lane::parse("openai/"), Err(LaneError::NoModel));
    }
}
