//! The catalog: the models one gateway offers, and their listing page by page.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{Filter, Model};

/// The models one gateway offers. Sorted by provider, then by id; the demo models come last,
/// since whoever has others is looking for those.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    models: Vec<Arc<Model>>,
    /// Everything that can be called: each model, and behind it the same under its other ids.
    listed: Vec<Arc<Model>>,
    by_id: HashMap<String, usize>,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Which page this is, the first one being 1.
    pub page: usize,
    /// How many models a full page holds.
    pub page_size: usize,
    /// How many models there are on all pages.
    pub total: usize,
    /// The models on this page.
    pub models: Vec<Arc<Model>>,
}

impl Catalog {
    /// A catalog of the models that have a lane. Of two with the same id the later one stays, so
    /// that an operator's word, put behind the directory's, overrides it.
    pub fn new(models: Vec<Model>) -> Self {
        let served = models.into_iter().filter(|model| !model.lanes.is_empty());
        let unique: HashMap<_, _> = served.map(|model| (model.id.clone(), model)).collect();
        let mut models: Vec<_> = unique.into_values().map(Arc::new).collect();
        models.sort_by(|a, b| place(a).cmp(&place(b)));
        let listed: Vec<_> = models.iter().flat_map(under_all_ids).collect();
        let by_id =
            listed.iter().enumerate().map(|(place, model)| (model.id.clone(), place)).collect();
        Self { models, listed, by_id }
    }

    /// The model with exactly that id, or under that other id.
    pub fn get(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id).and_then(|place| self.listed.get(*place))
    }

    /// Every model, in order, under its own id alone.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Model>> {
        self.models.iter()
    }

    /// How many models there are.
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// One page of what can be called, as far as the filter admits it. Pages and their sizes start at one; a page
    /// behind the last one is empty.
    pub fn list(&self, filter: &Filter, page: usize, page_size: usize) -> Page {
        let (page, page_size) = (page.max(1), page_size.max(1));
        let admitted: Vec<_> = self.listed.iter().filter(|model| filter.admits(model)).collect();
        let models = admitted
            .iter()
            .skip((page - 1).saturating_mul(page_size))
            .take(page_size)
            .map(|model| Arc::clone(model))
            .collect();
        Page { page, page_size, total: admitted.len(), models }
    }
}

/// A model, and the same under its other ids: whoever looks for one of them finds it.
fn under_all_ids(model: &Arc<Model>) -> impl Iterator<Item = Arc<Model>> {
    let other = |id: &String| Model { id: id.clone(), aliases: Vec::new(), ..Model::clone(model) };
    std::iter::once(Arc::clone(model)).chain(model.aliases.iter().map(other).map(Arc::new))
}

fn place(model: &Model) -> (bool, &str, &str) {
    (model.provider == "demo", &model.provider, &model.id)
}
