//! Running calls by place: each reservation knows its own, so that none is searched.

/// Place of a running call in the table, kept by its reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPlace(usize);

/// Running calls by their places. The place of a settled call is used again.
pub(super) struct CallPlaces<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for CallPlaces<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> CallPlaces<T> {
    pub(super) fn insert(&mut self, call: T) -> CallPlace {
        let free = self.free.pop().unwrap_or(self.places.len());
        match self.places.get_mut(free) {
            Some(place) => *place = Some(call),
            None => self.places.push(Some(call)),
        }
        CallPlace(free)
    }

    pub(super) fn remove(&mut self, place: CallPlace) -> Option<T> {
        let call = self.places.get_mut(place.0)?.take()?;
        self.free.push(place.0);
        Some(call)
    }

    pub(super) fn get(&self, place: CallPlace) -> Option<&T> {
        self.places.get(place.0)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: CallPlace) -> Option<&mut T> {
        self.places.get_mut(place.0)?.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    /// Returns the calls with their places.
    pub(super) fn with_places(&mut self) -> impl Iterator<Item = (CallPlace, &mut T)> {
        let places = self.places.iter_mut().enumerate();
        places.filter_map(|(place, call)| call.as_mut().map(|call| (CallPlace(place), call)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_has_its_own_call_whatever_others_come_and_go(
            steps in proptest::collection::vec((any::<bool>(), 0..9_usize), 0..80)
        ) {
            let (mut table, mut known) = (CallPlaces::default(), Vec::new());
            for (call, (adds, at)) in steps.into_iter().enumerate() {
                if adds || known.is_empty() {
                    known.push((table.insert(call), call));
                } else {
                    let (place, call) = known.swap_remove(at % known.len());
                    prop_assert_eq!(table.remove(place), Some(call));
                    prop_assert_eq!(table.remove(place), None);
                }
                prop_assert_eq!(table.len(), known.len());
                prop_assert_eq!(table.values().count(), known.len());
                for (place, call) in &known {
                    prop_assert_eq!(table.get(*place), Some(call));
                }
            }
        }
    }
}
