//! The selection of calls that an address has. It decides the chart, the sums, the table and the file alike.

use std::ops::Range;

use canon::{Micros, Money};
use maud::Markup;
use store::{CallFilter, EntryFilter, GroupBy, StatusFilter};

use super::metric::UsageMetric;
use crate::form::FormFields;
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::time_range::{Calendar, TimeRange, range_fields};
use crate::urls::{self, TEAM_PARAMETER};
use crate::viewer_time::{MAX_ZONE_BYTES, ViewerClock, ViewerZone, ZONE_PARAMETER};

pub(super) const PAGE_PATH: &str = "/console/activity";
pub(super) const FILE_PATH: &str = "/console/activity.csv";
/// A tag has a name and a value of 256 bytes each.
const MAX_PARAMETER_BYTES: usize = 520;

/// Parameters of the chart.
const METRIC: &str = "what";
const GROUP: &str = "by";
const TAG_NAME: &str = "tag_name";
/// Parameters of conditions, in the order of an address.
const CONDITIONS: [&str; 12] = [
    "account", "key", "model", "lane", "status", "error", "format", "session", "end_user", "tag",
    "cost", "took",
];
/// Begin of a page of the table.
const BEFORE: &str = "before";

/// The selection with its chart.
#[derive(Clone)]
pub(super) struct ActivitySelection {
    pub(super) metric: UsageMetric,
    pub(super) group_by: GroupBy,
    /// Name of the tag whose values are the groups.
    pub(super) tag: Option<String>,
    pub(super) time: TimeRange,
    /// Days of the zone that the address has. The whole page is in that zone.
    pub(super) calendar: Calendar,
    pub(super) filter: CallFilter,
    /// The last call of the page before.
    pub(super) before: Option<(Micros, String)>,
    /// The team the user acts for.
    team: Option<String>,
    /// Zone of the viewer.
    own_zone: ViewerZone,
    /// Conditions as the address has them.
    conditions: [String; CONDITIONS.len()],
}

impl ActivitySelection {
    /// Reads an address. A condition that is not understood must not widen the selection.
    ///
    /// Dates without a zone are those of UTC, so that an address selects the same calls for everybody.
    pub(super) fn parse(
        query: &FormFields,
        user: &SignedInUser,
        now: Micros,
        hours_from: Option<Micros>,
    ) -> Result<Self, PageError> {
        let time = TimeRange::read(query)?.unwrap_or(TimeRange::DEFAULT);
        let zone = match query.get_trimmed(ZONE_PARAMETER, MAX_ZONE_BYTES)? {
            "" if time.has_dates() => ViewerZone::UTC,
            "" => user.zone.clone(),
            name => ViewerZone::read(name)?,
        };
        let mut conditions = [const { String::new() }; CONDITIONS.len()];
        for (name, condition) in CONDITIONS.into_iter().zip(&mut conditions) {
            query.get_trimmed(name, MAX_PARAMETER_BYTES)?.clone_into(condition);
        }
        let own = |text: &String| (!text.is_empty()).then(|| text.clone());
        let [account, key, model, lane, status, error, format, session, end_user, tag, cost, took] =
            &conditions;
        let status = own(status).map(|word| {
            StatusFilter::by_word(&word).ok_or(PageError::BadRequest(
                "The status is not known. Write done, failed, a number, or 4xx or 5xx.",
            ))
        });
        let min_cost = own(cost).map(|text| {
            let amount = text.trim_start_matches('$').parse::<Money>();
            amount.map_err(|_| PageError::BadRequest("A cost is written in dollars like 0.25."))
        });
        let min_took = own(took).map(|text| {
            read_seconds(&text)
                .ok_or(PageError::BadRequest("A time is written in seconds like 2.5."))
        });
        let account_id =
            if user.sees_all() { own(account) } else { Some(user.owner_id().to_owned()) };
        let filter = CallFilter {
            account_id,
            key_id: own(key),
            model: own(model),
            lane: own(lane),
            status: status.transpose()?,
            format: own(format),
            session: own(session),
            end_user: own(end_user),
            tag: own(tag),
            error: own(error),
            min_cost: min_cost.transpose()?,
            min_took: min_took.transpose()?,
        };
        let before = query.get_trimmed(BEFORE, MAX_PARAMETER_BYTES)?.split_once('~');
        let before =
            before.and_then(|(ended, id)| Some((Micros::new(ended.parse().ok()?), id.to_owned())));
        let group_by = GroupBy::by_word(query.get(GROUP)).unwrap_or(GroupBy::Model);
        let tag = query.get_trimmed(TAG_NAME, MAX_PARAMETER_BYTES)?.to_owned();
        Ok(Self {
            metric: UsageMetric::by_word(query.get(METRIC)).unwrap_or(UsageMetric::Spend),
            group_by,
            tag: (group_by == GroupBy::Tag && !tag.is_empty()).then_some(tag),
            time,
            calendar: Calendar { clock: ViewerClock { now, zone }, hours_from },
            filter,
            before,
            team: user.team.as_ref().map(|team| team.id.clone()),
            own_zone: user.zone.clone(),
            conditions,
        })
    }

    /// The range of the begins of the calls.
    pub(super) fn range(&self) -> Range<Micros> {
        self.time.at(&self.calendar)
    }

    /// The zone of the page.
    pub(super) fn zone(&self) -> &ViewerZone {
        &self.calendar.clock.zone
    }

    /// The zone in an address with this time; empty if the address means it anyway.
    fn zone_parameter(&self, time: TimeRange) -> &str {
        let is_meant = match time.has_dates() {
            true => *self.zone() == ViewerZone::UTC,
            false => *self.zone() == self.own_zone,
        };
        if is_meant { "" } else { self.zone().name() }
    }

    /// Address of the same days in the zone of the viewer; `None` if the page is in that zone.
    pub(super) fn in_own_zone(&self) -> Option<String> {
        let is_other = *self.zone() != self.own_zone;
        is_other.then(|| self.with_parameter(ZONE_PARAMETER, self.own_zone.name()))
    }

    /// The zone of the viewer.
    pub(super) fn own_zone(&self) -> &ViewerZone {
        &self.own_zone
    }

    /// The range that it is compared with.
    pub(super) fn range_before(&self) -> Range<Micros> {
        self.time.before(&self.calendar)
    }

    /// The calls of the table and of the file.
    pub(super) fn entry_filter(&self) -> EntryFilter {
        EntryFilter {
            began: Some(self.range()),
            before: self.before.clone(),
            ..EntryFilter::from(self.filter.clone())
        }
    }

    /// The value of a condition in the address.
    pub(super) fn condition(&self, name: &str) -> &str {
        let all = CONDITIONS.into_iter().zip(&self.conditions);
        all.into_iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value)
    }

    /// Returns true if not all calls of the time are selected.
    pub(super) fn is_narrow(&self) -> bool {
        self.conditions.iter().any(|condition| !condition.is_empty())
    }

    /// All parameters of the address with their values. The begin of a page is not among them.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let [range, from, to] = self.time.to_parameters();
        let first = [
            (TEAM_PARAMETER, self.team.clone().unwrap_or_default()),
            (METRIC, self.metric.as_str().to_owned()),
            (GROUP, self.group_by.word().to_owned()),
            (TAG_NAME, self.tag.clone().unwrap_or_default()),
            ("range", range),
            ("from", from),
            ("to", to),
            (ZONE_PARAMETER, self.zone_parameter(self.time).to_owned()),
        ];
        let conditions = CONDITIONS.into_iter().zip(self.conditions.clone());
        let all = first.into_iter().chain(conditions);
        all.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Address of a path with this selection and some parameters changed; an empty value removes one.
    fn address(&self, path: &str, changed: &[(&str, &str)]) -> String {
        let kept = self.parameters().into_iter();
        let kept = kept.filter(|(own, _)| changed.iter().all(|(name, _)| name != own));
        let added = changed.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let parts = kept.chain(added.filter(|(_, value)| !value.is_empty()));
        let parts: Vec<String> =
            parts.map(|(name, value)| format!("{name}={}", urls::escape_value(&value))).collect();
        format!("{path}?{}", parts.join("&"))
    }

    /// Address of this selection with one parameter changed; an empty value removes it.
    pub(super) fn with_parameter(&self, name: &str, value: &str) -> String {
        self.address(PAGE_PATH, &[(name, value)])
    }

    /// Address of this selection in another time.
    pub(super) fn with_time(&self, time: TimeRange) -> String {
        let [range, from, to] = time.to_parameters();
        let zone = self.zone_parameter(time);
        self.in_time([&range, &from, &to], zone)
    }

    /// Address of this selection without a time, to which a script adds days.
    pub(super) fn without_time(&self) -> String {
        let is_utc = *self.zone() == ViewerZone::UTC;
        self.in_time([""; 3], if is_utc { "" } else { self.zone().name() })
    }

    fn in_time(&self, parameters: [&str; 3], zone: &str) -> String {
        let time = TimeRange::PARAMETERS.into_iter().zip(parameters);
        let changed: Vec<(&str, &str)> = time.chain([(ZONE_PARAMETER, zone)]).collect();
        self.address(PAGE_PATH, &changed)
    }

    /// Address of the calls of a group of this selection; `None` for a group without a name, and if an address
    /// cannot have both the group and a condition that is there.
    pub(super) fn with_group(&self, group: &str) -> Option<String> {
        if group.is_empty() {
            return None;
        }
        let (name, value) = match (self.group_by, &self.tag) {
            // A lane without a slash is a provider.
            (GroupBy::Provider, _) => ("lane", group.to_owned()),
            (GroupBy::Tag, Some(tag)) => ("tag", format!("{tag}={group}")),
            (by, _) => (by.word(), group.to_owned()),
        };
        let condition = self.condition(name);
        let is_narrower = match (self.group_by, self.filter.status) {
            (GroupBy::Provider, _) if condition.contains('/') => {
                return Some(self.with_parameter("lane", condition));
            }
            (GroupBy::Tag, _) => Some(condition) == self.tag.as_deref(),
            (GroupBy::Status, Some(StatusFilter::Done | StatusFilter::Failed)) => false,
            (_, _) => true,
        };
        let may_replace = condition.is_empty() || condition == value || is_narrower;
        may_replace.then(|| self.with_parameter(name, &value))
    }

    /// Address of all calls of this time.
    pub(super) fn without_conditions(&self) -> String {
        let changed = CONDITIONS.map(|name| (name, ""));
        self.address(PAGE_PATH, &changed)
    }

    /// Address of the next page of the table.
    pub(super) fn next_page(&self, (ended, id): &(Micros, String)) -> String {
        self.with_parameter(BEFORE, &format!("{ended}~{id}"))
    }

    /// Address of the file with the same calls.
    pub(super) fn file(&self) -> String {
        self.address(FILE_PATH, &[])
    }

    /// The same selection with groups by the values of this tag.
    pub(super) fn by_tag(&self, tag: Option<&String>) -> Self {
        Self { tag: tag.cloned(), ..self.clone() }
    }

    /// Name of the dimension of the groups, for headings.
    pub(super) fn group_title(&self) -> String {
        match (self.group_by, &self.tag) {
            (GroupBy::Tag, Some(tag)) => format!("tag {tag}"),
            (by, _) => group_label(by),
        }
    }

    /// Fields for the time.
    pub(super) fn time_fields(&self) -> Markup {
        range_fields(self.time, &self.calendar.clock)
    }
}

/// Returns the name of a dimension for people.
pub(super) fn group_label(by: GroupBy) -> String {
    by.word().replace('_', " ")
}

/// Reads seconds with up to six decimals.
fn read_seconds(text: &str) -> Option<Micros> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 6 {
        return None;
    }
    let has_digit = !whole.is_empty() || !fraction.is_empty();
    let micros = format!("{whole}{fraction:0<6}").parse().ok()?;
    has_digit.then_some(Micros::new(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_exactly() {
        for (text, micros) in [
            ("2", Some(2_000_000)),
            ("2.5", Some(2_500_000)),
            (".25", Some(250_000)),
            ("0.000001", Some(1)),
            ("3.", Some(3_000_000)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1.2.3", None),
            ("0.0000001", None),
            ("2s", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(read_seconds(text), micros.map(Micros::new), "{text:?}");
        }
    }
}
