//! One provider serving one model.

use std::fmt;

/// One provider serving one model under the provider's own name for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    /// The provider's id.
    pub provider: String,
    /// The model's name at the provider; may hold slashes and colons.
    pub model: String,
    /// How large a share this lane takes among lanes of equal preference.
    pub weight: u32,
}

/// Why a text does not name a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneFault {
    /// There is no slash between provider and model.
    NoSlash,
    /// Nothing stands before the first slash.
    NoProvider,
    /// Nothing stands behind the first slash.
    NoModel,
}

impl fmt::Display for LaneFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a lane is written \"provider/model\"",
            Self::NoProvider => "a lane names a provider before the slash",
            Self::NoModel => "a lane names the provider's model behind the slash",
        })
    }
}

impl std::error::Error for LaneFault {}

impl Lane {
    /// A lane of weight one.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), weight: 1 }
    }

    /// Reads `provider/model`. The first slash divides: a provider's id never holds one, the
    /// names of models often do.
    pub fn parse(text: &str) -> Result<Self, LaneFault> {
        let (provider, model) = text.split_once('/').ok_or(LaneFault::NoSlash)?;
        if provider.is_empty() {
            return Err(LaneFault::NoProvider);
        }
        if model.is_empty() {
            return Err(LaneFault::NoModel);
        }
        Ok(Self::new(provider, model))
    }

    /// `provider/model`, as in configuration, headers and receipts.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    /// The same lane with another weight.
    #[must_use]
    pub fn weighing(self, weight: u32) -> Self {
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
    fn the_first_slash_divides_provider_and_model() {
        let lane = Lane::parse("together/moonshotai/Kimi-K3:free").unwrap();
        assert_eq!(
            (lane.provider.as_str(), lane.model.as_str()),
            ("together", "moonshotai/Kimi-K3:free")
        );
        assert_eq!(lane.weight, 1);
    }

    #[test]
    fn a_lane_survives_being_written_and_read() {
        for text in ["a/b", "bedrock/anthropic.claude:0", "x/y/z", "x//"] {
            let lane = Lane::parse(text).unwrap();
            assert_eq!(lane.name(), text);
            assert_eq!(lane.to_string(), text);
            assert_eq!(Lane::parse(&lane.name()), Ok(lane));
        }
    }

    #[test]
    fn half_a_lane_is_refused() {
        assert_eq!(Lane::parse("gpt"), Err(LaneFault::NoSlash));
        assert_eq!(Lane::parse("/gpt"), Err(LaneFault::NoProvider));
        assert_eq!(Lane::parse("openai/"), Err(LaneFault::NoModel));
    }
}
