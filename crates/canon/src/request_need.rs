//! Needs of a request: what it asks of its model beyond text, with the place in the caller's body.
//!
//! Every format reads them while it checks a request, so that they are compared with the model before a
//! lane is chosen.

use std::borrow::Cow;

use crate::{EffortLevel, MediaKind, Modality, ToolKind};

/// One need of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestNeed {
    /// Path of the field in the caller's body.
    pub path: Cow<'static, str>,
    /// The need.
    pub kind: NeedKind,
}

/// The kind of a need.
#[derive(Clone, Debug, PartialEq)]
pub enum NeedKind {
    /// The model reads media of one kind.
    Media(MediaNeed),
    /// The model makes output of this kind.
    Output(Modality),
    /// The model makes images of this aspect ratio.
    AspectRatio(String),
    /// The model makes images of this named size.
    ImageSize(String),
    /// The model thinks within this budget.
    ThinkingBudget(u64),
    /// The model does not think.
    ThinkingOff,
    /// The model chooses how much it thinks.
    ThinkingDynamic,
    /// The model thinks as much as the level says.
    ThinkingLevel(EffortLevel),
    /// The model uses tools of this kind.
    Tool(ToolKind),
    /// The model uses a tool with this name, which no format of the gateway knows.
    UnknownTool(String),
    /// A provider of the caller's format obeys a field that no other format has and that must not be dropped.
    OwnField,
    /// The model answers in JSON.
    Json(JsonOutput),
    /// The model gives the probabilities of its tokens.
    Logprobs,
    /// The model takes this value of a parameter. For texts it is their number.
    Parameter(SamplingParameter, f64),
    /// The model makes this many answers.
    Candidates(u32),
    /// The model makes vectors with this many numbers.
    Dimensions(u64),
}

/// Media of one kind in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaNeed {
    /// The kind.
    pub kind: MediaKind,
    /// Number of media.
    pub count: u64,
    /// Place and bytes of the largest one inside the request, if one is.
    pub largest: Option<(String, u64)>,
}

/// Parameters whose range a model may state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingParameter {
    /// Temperature.
    Temperature,
    /// Share of probability that is sampled from.
    TopP,
    /// Number of tokens that is sampled from.
    TopK,
    /// Penalty of tokens that have occurred.
    PresencePenalty,
    /// Penalty of tokens by the number of times they have occurred.
    FrequencyPenalty,
    /// Seed.
    Seed,
    /// Texts that end an answer.
    StopSequences,
    /// Number of probabilities of each token.
    Logprobs,
}

impl SamplingParameter {
    /// All parameters.
    pub const ALL: [Self; 8] = [
        Self::Temperature,
        Self::TopP,
        Self::TopK,
        Self::PresencePenalty,
        Self::FrequencyPenalty,
        Self::Seed,
        Self::StopSequences,
        Self::Logprobs,
    ];

    /// Returns the word in data files and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::TopK => "top_k",
            Self::PresencePenalty => "presence_penalty",
            Self::FrequencyPenalty => "frequency_penalty",
            Self::Seed => "seed",
            Self::StopSequences => "stop_sequences",
            Self::Logprobs => "logprobs",
        }
    }
}

/// Answers in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JsonOutput {
    /// Any JSON.
    Object,
    /// JSON that fits a schema of the request.
    Schema,
}

impl JsonOutput {
    /// Both, the simpler one first.
    pub const ALL: [Self; 2] = [Self::Object, Self::Schema];

    /// Returns the word in data files and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Object => "json",
            Self::Schema => "json-schema",
        }
    }
}

/// Needs of one request. The first place of each kind of media counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestNeeds(Vec<RequestNeed>);

impl RequestNeeds {
    /// Adds a need.
    pub fn add(&mut self, path: impl Into<Cow<'static, str>>, kind: NeedKind) {
        self.0.push(RequestNeed { path: path.into(), kind });
    }

    /// Adds one of the media, with its bytes if it is inside the request.
    pub fn add_media(&mut self, kind: MediaKind, bytes: Option<u64>, path: impl Fn() -> String) {
        let known = self.0.iter_mut().find_map(|need| {
            let NeedKind::Media(media) = &mut need.kind else { return None };
            (media.kind == kind).then_some(media)
        });
        let Some(known) = known else {
            let largest = bytes.map(|bytes| (path(), bytes));
            self.add(path(), NeedKind::Media(MediaNeed { kind, count: 1, largest }));
            return;
        };
        known.count += 1;
        if let Some(bytes) = bytes
            && known.largest.as_ref().is_none_or(|(_, most)| bytes > *most)
        {
            known.largest = Some((path(), bytes));
        }
    }

    /// Adds a parameter that the request has.
    pub fn add_parameter(
        &mut self,
        path: &'static str,
        parameter: SamplingParameter,
        value: Option<f64>,
    ) {
        if let Some(value) = value {
            self.add(path, NeedKind::Parameter(parameter, value));
        }
    }

    /// Adds a whole number, or a number of texts.
    pub fn add_whole_parameter(
        &mut self,
        path: &'static str,
        parameter: SamplingParameter,
        value: Option<impl TryInto<i64>>,
    ) {
        let value = value.map(|value| value.try_into().unwrap_or(i64::MAX));
        #[expect(clippy::cast_precision_loss, reason = "the limits of a range are small")]
        self.add_parameter(path, parameter, value.map(|value| value as f64));
    }

    /// Returns all needs.
    pub fn iter(&self) -> impl Iterator<Item = &RequestNeed> {
        self.0.iter()
    }

    /// Returns the kinds of media, each with its first place.
    pub fn media(&self) -> impl Iterator<Item = (&str, MediaKind)> {
        self.0.iter().filter_map(|need| {
            let NeedKind::Media(media) = &need.kind else { return None };
            Some((&*need.path, media.kind))
        })
    }

    /// Adds a tool by its type or its key, unless the request needs one of that kind already. The first
    /// unknown one counts.
    pub fn add_tool(&mut self, name: &str, path: impl FnOnce() -> String) {
        match ToolKind::from_wire(name).needed() {
            ToolKind::Other if self.unknown_tool().is_none() => {
                self.add(path(), NeedKind::UnknownTool(name.to_owned()));
            }
            ToolKind::Other => {}
            kind if self.0.iter().any(|known| known.kind == NeedKind::Tool(kind)) => {}
            kind => self.add(path(), NeedKind::Tool(kind)),
        }
    }

    /// Returns the needs without that of tools of this kind; `None` if there is no such need.
    #[must_use]
    pub fn without_tool(&self, kind: ToolKind) -> Option<Self> {
        let is_kept = |need: &&RequestNeed| need.kind != NeedKind::Tool(kind);
        let kept: Vec<_> = self.0.iter().filter(is_kept).cloned().collect();
        (kept.len() < self.0.len()).then_some(Self(kept))
    }

    /// Returns the first tool that no format knows, with its place.
    pub fn unknown_tool(&self) -> Option<&RequestNeed> {
        self.0.iter().find(|need| matches!(need.kind, NeedKind::UnknownTool(_)))
    }

    /// Returns the first field that only a provider of the caller's format obeys.
    pub fn own_field(&self) -> Option<&RequestNeed> {
        self.0.iter().find(|need| need.kind == NeedKind::OwnField)
    }

    /// Returns true if there are no media.
    pub fn media_is_empty(&self) -> bool {
        self.media().next().is_none()
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
