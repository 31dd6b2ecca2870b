//! Needs of a request: what it asks of its model beyond text, with the place in the caller's body.
//!
//! Every format reads them while it checks a request, so that they are compared with the model before a
//! lane is chosen.

use crate::{MediaKind, Modality, ToolKind};

/// One need of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestNeed {
    /// Path of the field in the caller's body.
    pub path: String,
    /// The need.
    pub kind: NeedKind,
}

/// The kind of a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeedKind {
    /// The model reads media of this kind.
    Media(MediaKind),
    /// The model makes output of this kind.
    Output(Modality),
    /// The model makes images of this aspect ratio.
    AspectRatio(String),
    /// The model makes images of this named size.
    ImageSize(String),
    /// The model thinks within this budget.
    ThinkingBudget(u64),
    /// The model thinks as much as the request says.
    ThinkingLevel,
    /// The model uses tools of this kind.
    Tool(ToolKind),
    /// The model uses a tool with this name, which no format of the gateway knows.
    UnknownTool(String),
    /// The model answers in JSON.
    Json(JsonOutput),
    /// The model gives the probabilities of its tokens.
    Logprobs,
    /// The model makes this many answers.
    Candidates(u32),
    /// The model makes vectors with this many numbers.
    Dimensions(u64),
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestNeeds(Vec<RequestNeed>);

impl RequestNeeds {
    /// Adds a need.
    pub fn add(&mut self, path: impl Into<String>, kind: NeedKind) {
        self.0.push(RequestNeed { path: path.into(), kind });
    }

    /// Adds media, unless the request needs media of that kind already.
    pub fn add_media(&mut self, media: MediaKind, path: impl FnOnce() -> String) {
        if !self.media().any(|(_, known)| known == media) {
            self.add(path(), NeedKind::Media(media));
        }
    }

    /// Returns all needs.
    pub fn iter(&self) -> impl Iterator<Item = &RequestNeed> {
        self.0.iter()
    }

    /// Returns the kinds of media, each with its first place.
    pub fn media(&self) -> impl Iterator<Item = (&str, MediaKind)> {
        self.0.iter().filter_map(|need| match need.kind {
            NeedKind::Media(kind) => Some((&*need.path, kind)),
            NeedKind::Output(_)
            | NeedKind::AspectRatio(_)
            | NeedKind::ImageSize(_)
            | NeedKind::ThinkingBudget(_)
            | NeedKind::ThinkingLevel
            | NeedKind::Tool(_)
            | NeedKind::UnknownTool(_)
            | NeedKind::Json(_)
            | NeedKind::Logprobs
            | NeedKind::Candidates(_)
            | NeedKind::Dimensions(_) => None,
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

    /// Returns the first tool that no format knows, with its place.
    pub fn unknown_tool(&self) -> Option<&RequestNeed> {
        self.0.iter().find(|need| matches!(need.kind, NeedKind::UnknownTool(_)))
    }

    /// Forgets the media, for a caller that has those dropped that a lane cannot carry.
    pub fn forget_media(&mut self) {
        self.0.retain(|need| !matches!(need.kind, NeedKind::Media(_)));
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
