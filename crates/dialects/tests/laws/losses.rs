//! `docs/losses.md`: what each pair of formats loses, for the people who call the gateway. It is
//! written from the same list the golden files are, so it cannot say anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::cases::{here, pairs};
use crate::pairs::{REFUSED, lost};

const INTRODUCTION: &str = "\
# What a translation cannot carry

<!-- Written by `cargo xtask losses` from what the translations do to the fixtures. Do not edit. -->

A call whose format is the provider's own passes as it is, and nothing below applies to it, but for
what another provider left in its history: foreign seals, unsealed thinking and searches would be
refused, so they are taken out and told by the names below. Between two formats most things have a
counterpart; what has none is left out, and you are told:

- the response header `x-portunus-loss` names what your call lost: at most 50 names of at most 100 characters, then
  `and N more` (`sampling.top_k, request.foo, and 39950 more`). In a name, spaces, commas, quotes, `%` and everything
  outside of ASCII are percent-encoded; receipts, dry runs and the 400 of strict mode keep to the same bound;
- with the request header `x-portunus-strict: true` such a call is refused instead, by the same names;
- with `x-portunus-dry-run: true` you see the translated request and its losses, and nobody is called.

One table per format you may call with. *Request* is on the way to the provider, *answer* on the way
back; *provider's format* is the one your model's provider speaks. Names are those of the header:
`sampling.top_k`, `part.cache`, or a field's own name where only one format has it.

A header that always says something says nothing. So what means nothing outside its own format is no
loss: what a thing is called there (`id`), the build of a provider's machinery (`system_fingerprint`)
and the usual `service_tier`. A tier out of the ordinary is handed on in your format's words, and a
loss where it has none.

Seals, the opaque signatures on thinking and tool calls, are not lost on the way: they come back to
the provider that issued them byte for byte. The few that cannot are named here as `reply.seal`,
`reply.part` and `part.seal`. Those your format has no sure place for (all of them in chat, in
messages the one some native models put on the end of their text) are kept by the gateway for a
while and put back when the same call or text returns.
";

/// The whole document.
fn document() -> String {
    let mut rows: BTreeMap<_, BTreeMap<(bool, String, String), BTreeSet<_>>> = BTreeMap::new();
    for (from, to) in pairs() {
        for line in lost(from, to) {
            let row = (line.way == "answer", line.what, line.why);
            let table = rows.entry(from.origin()).or_default();
            table.entry(row).or_default().insert(to.origin());
        }
    }
    let mut text = INTRODUCTION.to_owned();
    for (from, table) in rows {
        write!(text, "\n## Callers of {from}\n\n").unwrap();
        text.push_str("| | What | Provider's format | Why |\n| - | - | - | - |\n");
        for ((answer, what, why), formats) in table {
            let way = if answer { "answer" } else { "request" };
            let formats: Vec<&str> = formats.iter().map(|format| format.name()).collect();
            let what = if what == REFUSED { "the whole request" } else { &format!("`{what}`") };
            let why = why.replace('|', "\\|");
            writeln!(text, "| {way} | {what} | {} | {why} |", formats.join(", ")).unwrap();
        }
    }
    text
}

#[test]
fn the_document_of_losses_is_fresh() {
    let path = here().join("../../../docs/losses.md");
    let text = document();
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/losses.md is stale: run `cargo xtask losses`");
}
