//! Pages of a PDF file, and the text on them.
//!
//! The table of positions is not used, because it is the caller's word: every object is found by its
//! mark, and of several with one number the largest counts. The pages are the leaves of the page tree,
//! as often as they are referred to.

use memchr::memmem;
use std::collections::{BTreeMap, BTreeSet};

use crate::flate::InflateBudget;
use crate::pdf_object::PdfObject;

/// More pages are not counted. No provider takes as many.
const MAX_PAGES: u64 = 10_000;
const MAX_TREE_DEPTH: usize = 64;
/// Letters of a ligature.
const MAX_USUAL_LETTERS: u64 = 4;
/// Bytes before the mark of an object in which a comment may hide its number.
const MARK_CONTEXT_BYTES: usize = 64;

/// Returns the number of pages and the bytes of text on all of them.
pub(super) fn measure(file: &[u8]) -> Option<(u64, u64)> {
    let mut document = PdfDocument {
        file,
        objects: BTreeMap::new(),
        budget: InflateBudget::for_file(file),
        texts: BTreeMap::new(),
        trees: BTreeMap::new(),
        forms: TextCount::default(),
        spoken: 0,
    };
    document.read_objects()?;
    if document.is_encrypted()? {
        return None;
    }
    let spoken = document.objects.values().flatten().map(|object| object.spoken);
    document.spoken = spoken.fold(0, u64::saturating_add);
    document.count_forms()?;
    let letters = document.letters_per_code()?;
    let roots: Vec<u32> =
        document.objects.values().flatten().flat_map(|object| object.roots.clone()).collect();
    let mut most = None;
    for root in roots {
        let (pages, text) = document.count_tree(root, 0)?;
        let (most_pages, most_text) = most.unwrap_or_default();
        most = Some((pages.max(most_pages), text.max(most_text)));
    }
    let (pages, text) = most.filter(|(pages, _)| *pages <= MAX_PAGES)?;
    let text = text.saturating_mul(letters).saturating_add(document.spoken);
    Some((pages, text))
}

struct PdfDocument<'a> {
    file: &'a [u8],
    /// Objects by number. A file that was changed has several of a number.
    objects: BTreeMap<u32, Vec<PdfObject>>,
    budget: InflateBudget,
    /// Text in the streams of an object.
    texts: BTreeMap<u32, TextCount>,
    /// Pages and text below a node of the page tree.
    trees: BTreeMap<u32, (u64, u64)>,
    /// Text of the drawings that pages share.
    forms: TextCount,
    /// Bytes of all texts that a mark in a page may name.
    spoken: u64,
}

impl PdfDocument<'_> {
    fn read_objects(&mut self) -> Option<()> {
        let mut packed = Vec::new();
        for mark in memmem::find_iter(self.file, b"obj") {
            let Some(number) = object_number(self.file, mark)? else { continue };
            let mut at = mark + 3;
            let object = PdfObject::read(self.file, &mut at, false);
            self.budget.take(at.saturating_sub(mark))?;
            let object = object?;
            if object.stream.is_some() && object.first.is_some() {
                packed.push(object.clone());
            }
            self.objects.entry(number).or_default().push(object);
        }
        packed.iter().try_for_each(|object| self.read_packed(object))
    }

    /// Reads a stream of objects (ISO 32000-1, section 7.5.7).
    fn read_packed(&mut self, object: &PdfObject) -> Option<()> {
        let mut data = Vec::new();
        self.read_stream(object, |bytes| data.extend_from_slice(bytes))?;
        let first = usize::try_from(object.first?).ok()?;
        let head = std::str::from_utf8(data.get(..first)?).ok()?;
        let numbers: Option<Vec<u32>> =
            head.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        for pair in numbers?.chunks_exact(2) {
            let [number, offset] = pair else { continue };
            let begin = first.checked_add(usize::try_from(*offset).ok()?)?;
            let mut at = begin;
            let object = PdfObject::read(&data, &mut at, true);
            self.budget.take(at.saturating_sub(begin))?;
            self.objects.entry(*number).or_default().push(object?);
        }
        Some(())
    }

    /// Unpacks the stream of an object.
    fn read_stream(&mut self, object: &PdfObject, mut emit: impl FnMut(&[u8])) -> Option<()> {
        let data = self.file.get(object.stream?..)?;
        match (object.flate_filters, object.other_filters) {
            (1, 0) => self.budget.inflate(data, emit),
            (0, 0) => {
                let data = data.get(..memmem::find(data, b"endstream")?)?;
                self.budget.take(data.len())?;
                emit(data);
                Some(())
            }
            // Other filters are rare, and not unpacked.
            _ => None,
        }
    }

    /// Returns true if the text of the file cannot be read. A trailer is no object.
    fn is_encrypted(&mut self) -> Option<bool> {
        for mark in memmem::find_iter(self.file, b"trailer") {
            let mut at = mark + 7;
            let trailer = PdfObject::read(self.file, &mut at, true);
            self.budget.take(at.saturating_sub(mark))?;
            if trailer.is_some_and(|trailer| trailer.is_encrypted) {
                return Some(true);
            }
        }
        Some(self.objects.values().flatten().any(|object| object.is_encrypted))
    }

    /// Returns the most letters that a font shows for one code (ISO 32000-1, section 9.10.3). Usual
    /// fonts have a few for ligatures, and the bytes of their codes bound these well enough.
    fn letters_per_code(&mut self) -> Option<u64> {
        let objects = self.objects.values().flatten();
        let maps: BTreeSet<u32> = objects.flat_map(|object| object.letter_maps.clone()).collect();
        let mut scan = HexScan::default();
        for map in maps {
            for object in self.objects.get(&map).cloned().unwrap_or_default() {
                if object.stream.is_some() {
                    self.read_stream(&object, |bytes| {
                        bytes.iter().for_each(|byte| scan.push(*byte));
                    })?;
                }
            }
        }
        // Four digits are a letter.
        let letters = scan.longest / 4;
        Some(if letters > MAX_USUAL_LETTERS { letters } else { 1 })
    }

    /// Counts the text of drawings. A page may show each of them as often as it draws anything.
    fn count_forms(&mut self) -> Option<()> {
        let is_form = |object: &&PdfObject| object.is_form && object.stream.is_some();
        let forms: Vec<PdfObject> =
            self.objects.values().flatten().filter(is_form).cloned().collect();
        for form in forms {
            let text = self.count_text(&form)?;
            self.forms.add(text);
        }
        self.forms.strings = self.forms.strings_with(self.spoken);
        // Drawings show each other.
        let uses = self.forms.drawings.saturating_add(1);
        self.forms.strings = self.forms.strings.saturating_mul(uses);
        Some(())
    }

    fn count_text(&mut self, object: &PdfObject) -> Option<TextCount> {
        let mut state = TextScan::default();
        self.read_stream(object, |bytes| bytes.iter().for_each(|byte| state.push(*byte)))?;
        Some(state.count)
    }

    /// Returns the text in the streams of an object: its own, or those of an array.
    fn count_content(&mut self, number: u32, is_member: bool) -> Option<TextCount> {
        if let Some(text) = self.texts.get(&number) {
            return Some(*text);
        }
        let mut most = TextCount::default();
        for object in self.objects.get(&number)?.clone() {
            let mut text = TextCount::default();
            if object.stream.is_some() {
                text = self.count_text(&object)?;
            } else if !is_member {
                for member in &object.members {
                    text.add(self.count_content(*member, true)?);
                }
            }
            most = most.max(text);
        }
        self.texts.insert(number, most);
        Some(most)
    }

    /// Returns the pages below a node of the page tree, and the text on them.
    fn count_tree(&mut self, number: u32, depth: usize) -> Option<(u64, u64)> {
        if let Some(known) = self.trees.get(&number) {
            return Some(*known);
        }
        if depth > MAX_TREE_DEPTH {
            return None;
        }
        // A node below itself has no pages there.
        self.trees.insert(number, (0, 0));
        let mut most = (0_u64, 0_u64);
        for object in self.objects.get(&number)?.clone() {
            let is_array = !object.members.is_empty();
            let (mut pages, mut text) = (0_u64, 0_u64);
            if object.has_kids || is_array {
                for kid in object.kids.iter().chain(&object.members) {
                    let (more, strings) = self.count_tree(*kid, depth + 1)?;
                    pages = pages.saturating_add(more);
                    text = text.saturating_add(strings);
                }
                pages = pages.saturating_add(object.direct_kids).max(object.count);
            } else {
                pages = 1;
            }
            if !object.has_kids || object.direct_kids > 0 {
                for content in &object.contents {
                    let content = self.count_content(*content, false)?;
                    let drawn = content.drawings.saturating_mul(self.forms.strings);
                    let own = content.strings_with(self.spoken);
                    text = text.saturating_add(own).saturating_add(drawn);
                }
            }
            most = (most.0.max(pages), most.1.max(text));
        }
        self.trees.insert(number, most);
        Some(most)
    }
}

/// Returns the number of the object whose mark `obj` stands there: `Some(None)` if it is no mark, and
/// `None` if that cannot be told.
fn object_number(file: &[u8], mark: usize) -> Option<Option<u32>> {
    let context = file.get(mark.saturating_sub(MARK_CONTEXT_BYTES)..mark)?;
    let is_longer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    if is_longer(file.get(mark + 3)) || is_longer(context.last()) {
        return Some(None);
    }
    if context.contains(&b'%') {
        // A comment between the number and the mark.
        let tail = context.rsplit(|byte| *byte == b'%').next().unwrap_or_default();
        if tail.iter().any(|byte| matches!(byte, b'\n' | b'\r')) && !has_number(tail) {
            return None;
        }
    }
    let words = context.rsplit(|byte| byte.is_ascii_whitespace() || *byte == 0);
    let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).take(3).collect();
    let is_cut = mark > MARK_CONTEXT_BYTES && words.len() < 3;
    if is_cut && words.iter().all(|word| word.iter().all(u8::is_ascii_digit)) {
        // The numbers may stand before the part that is looked at.
        return None;
    }
    let mut words = words.into_iter();
    let mut next = || {
        let word = words.next()?;
        let digits = word.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(word.get(word.len() - digits..)?).ok()?.parse::<u32>().ok()
    };
    let (generation, number) = (next(), next());
    Some(generation.and(number))
}

fn has_number(text: &[u8]) -> bool {
    let words = text.split(|byte| byte.is_ascii_whitespace() || *byte == 0);
    words.filter(|word| word.iter().all(u8::is_ascii_digit) && !word.is_empty()).count() >= 2
}

/// Text of a page or drawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TextCount {
    /// Bytes in its strings.
    strings: u64,
    /// Number of times it draws another object.
    drawings: u64,
    /// Number of parts that are marked, each with a text of its own.
    marks: u64,
}

impl TextCount {
    fn add(&mut self, other: Self) {
        self.strings = self.strings.saturating_add(other.strings);
        self.drawings = self.drawings.saturating_add(other.drawings);
        self.marks = self.marks.saturating_add(other.marks);
    }

    fn max(self, other: Self) -> Self {
        Self {
            strings: self.strings.max(other.strings),
            drawings: self.drawings.max(other.drawings),
            marks: self.marks.max(other.marks),
        }
    }

    /// Returns the bytes of its strings, and of the texts of its marks, if these may name so many bytes.
    const fn strings_with(&self, spoken: u64) -> u64 {
        self.strings.saturating_add(self.marks.saturating_mul(spoken))
    }
}

/// Finds the longest string of hexadecimal digits.
#[derive(Default)]
struct HexScan {
    longest: u64,
    digits: u64,
    is_open: bool,
}

impl HexScan {
    fn push(&mut self, byte: u8) {
        match byte {
            b'<' => (self.is_open, self.digits) = (true, 0),
            b'>' | b'/' | b'(' => self.is_open = false,
            _ => self.digits += u64::from(self.is_open && byte.is_ascii_hexdigit()),
        }
        self.longest = self.longest.max(self.digits);
    }
}

/// Counts the strings in a stream of operators (ISO 32000-1, section 7.8.2), byte by byte.
#[derive(Default)]
struct TextScan {
    count: TextCount,
    depth: u32,
    is_escaped: bool,
    is_hex: bool,
    last: u8,
    /// Last byte that is no space, and that of the word before.
    solid: u8,
    before: u8,
}

impl TextScan {
    fn push(&mut self, byte: u8) {
        let last = std::mem::replace(&mut self.last, byte);
        if byte.is_ascii_alphabetic() && !last.is_ascii_alphabetic() {
            self.before = self.solid;
        }
        if !byte.is_ascii_whitespace() {
            self.solid = byte;
        }
        if self.depth > 0 {
            self.count.strings += 1;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'(' => self.depth = self.depth.saturating_add(1),
                b')' => self.depth -= 1,
                _ => {}
            }
        } else if self.is_hex {
            self.count.strings += 1;
            self.is_hex = byte != b'>' && byte != b'<';
        } else {
            match byte {
                b'(' => self.depth = 1,
                b'<' => self.is_hex = true,
                b'o' if last == b'D' => self.count.drawings += 1,
                // A mark with its own dictionary names no other one.
                b'C' if last == b'D' && self.before != b'>' => self.count.marks += 1,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use std::io::Write as _;

    /// A file with these objects, without a table of positions.
    fn file(objects: &[(u32, &str)]) -> Vec<u8> {
        let mut file = b"%PDF-1.7\n".to_vec();
        for (number, body) in objects {
            file.extend_from_slice(format!("{number} 0 obj\n{body}\nendobj\n").as_bytes());
        }
        file.extend_from_slice(b"trailer << /Root 1 0 R >>\n%%EOF");
        file
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    const ROOT: (u32, &str) = (1, "<< /Type /Catalog /Pages 2 0 R >>");

    #[test]
    fn pages_are_counted_as_often_as_they_are_named() {
        let kids = "3 0 R ".repeat(100);
        let tree = format!("<< /Type /Pages /Count 1 /Kids [{kids}] >>");
        let page = (3, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>");
        assert_eq!(measure(&file(&[ROOT, (2, &tree), page])), Some((100, 0)));
        let tree = (2, "<< /Type/Pages/K#69ds 4 0 R/Count 7>>");
        let list = (4, "[3 0 R %x\n 3 0 R]");
        assert_eq!(measure(&file(&[ROOT, tree, list, page])), Some((7, 0)));
        // The larger of two objects with one number.
        let small = (2, "<< /Kids [3 0 R] >>");
        let large = (2, "<< /Kids [3 0 R 3 0 R 3 0 R] >>");
        for tree in [[small, large], [large, small]] {
            let [first, second] = tree;
            assert_eq!(measure(&file(&[ROOT, first, second, page])), Some((3, 0)));
        }
    }

    #[test]
    fn text_counts_on_every_page_that_shows_it() {
        let tree = (2, "<< /Kids [3 0 R 3 0 R] >>");
        let page = (3, "<< /Type /Page /Contents [4 0 R 5 0 R] >>");
        let text = "<< /Length 20 >>\nstream\nBT (a\\)bc) Tj <41> Tj /X Do ET\nendstream";
        let form = "<< /Subtype /Form >>\nstream\n(abcdefghi) Tj\nendstream";
        let bytes = file(&[ROOT, tree, page, (4, text), (5, text), (6, form)]);
        let (pages, text) = measure(&bytes).unwrap();
        // Two pages of two streams, each with five, two and the ten bytes of the drawing.
        assert_eq!(pages, 2);
        assert!((2 * 2 * (5 + 2 + 10)..2 * 2 * (8 + 4 + 12)).contains(&text), "{text}");
    }

    /// A text before a key is the value of the key before it.
    #[test]
    fn texts_hide_no_keys() {
        let page = (3, "<< /Type /Page >>");
        for text in ["(a)", "<61>", "(a\\))", "(<<)"] {
            let tree = format!("<< /X {text}/Kids [3 0 R 3 0 R]>>");
            assert_eq!(measure(&file(&[ROOT, (2, &tree), page])).map(|(pages, _)| pages), Some(2));
        }
    }

    /// A reader may take the text of a mark for what is drawn, as often as the page has the mark.
    #[test]
    fn texts_of_marks_count_as_often_as_they_are_named() {
        let marks = "/Span /P BDC EMC /P <</MCID 1>> BDC EMC /P<<>>BDC EMC ".repeat(150);
        let content = format!("<<>>\nstream\n{marks}\nendstream");
        let text = format!("<< /ActualText ({}) >>", "x".repeat(1_000));
        let pages = [ROOT, (2, "<< /Kids [3 0 R] >>"), (3, "<< /Contents 4 0 R >>")];
        let bytes = file(&[&pages[..], &[(4, &content), (5, &text)]].concat());
        let (_, text) = measure(&bytes).unwrap();
        assert!((150_000..160_000).contains(&text), "{text}");
    }

    /// A font may show a whole text for one code.
    #[test]
    fn codes_count_as_often_as_they_have_letters() {
        let text = "<< /Length 9 >>\nstream\nBT (0123456789) Tj ET\nendstream";
        let pages = [ROOT, (2, "<< /Kids [3 0 R] >>"), (3, "<< /Contents 4 0 R >>"), (4, text)];
        let font = (5, "<< /Type /Font /ToUnicode 6 0 R >>");
        let of = |letters: usize| {
            let map = format!(
                "<<>>\nstream\n1 beginbfchar <41> <{}> end\nendstream",
                "4e00".repeat(letters)
            );
            measure(&file(&[&pages[..], &[font, (6, &map)]].concat())).unwrap().1
        };
        assert_eq!((of(1), of(3)), (11, 11));
        assert_eq!(of(100), 1_100);
    }

    #[test]
    fn a_mark_far_from_its_number_is_unknown() {
        let tree = format!("<< /Kids [{}] >>", "3 0 R ".repeat(90));
        let bytes = file(&[ROOT, (2, &tree), (3, "<< /Type /Page >>")]);
        assert_eq!(measure(&bytes), Some((90, 0)));
        let text = String::from_utf8(bytes).unwrap();
        for far in [format!("2 0{}obj", " ".repeat(70)), format!("2{}0 obj", "\n".repeat(70))] {
            assert_eq!(measure(text.replace("2 0 obj", &far).as_bytes()), None);
        }
    }

    #[test]
    fn packed_objects_are_unpacked() {
        let inner = b"2 0 3 27 << /Kids [3 0 R 3 0 R] >>\n << /Type /Page >>";
        let data = packed(inner);
        let head = "<< /Type /ObjStm /N 2 /First 9 /Filter /FlateDecode >>\nstream\n";
        let mut bytes = file(&[ROOT]);
        bytes.extend_from_slice(format!("9 0 obj {head}").as_bytes());
        bytes.extend_from_slice(&data);
        bytes.extend_from_slice(b"\nendstream endobj");
        assert_eq!(measure(&bytes), Some((2, 0)));
    }

    #[test]
    fn files_that_cannot_be_measured_have_no_size() {
        let page = (3, "<< /Type /Page >>");
        let deep: Vec<(u32, String)> =
            (2..80).map(|number| (number, format!("<< /Kids [{} 0 R] >>", number + 1))).collect();
        let deep: Vec<(u32, &str)> = deep.iter().map(|(number, text)| (*number, &**text)).collect();
        let large = format!("<< /Kids [{}] >>", "3 0 R ".repeat(10_001));
        for objects in [
            vec![],
            vec![ROOT],
            vec![(1, "<< /Type /Catalog >>"), page],
            vec![ROOT, (2, "<< /Kids [3 0 R] /Count 1000000 >>"), page],
            vec![ROOT, (2, &large), page],
            vec![
                ROOT,
                (2, "<< /Kids [3 0 R] >>"),
                (3, "<< /Contents 4 0 R >>"),
                (4, "<< /Filter /LZWDecode >>\nstream\nx\nendstream"),
            ],
            [vec![ROOT], deep].concat(),
        ] {
            assert_eq!(measure(&file(&objects)), None, "{objects:?}");
        }
        // A number behind a comment.
        let hidden = b"%PDF-1.7\n2 0 %\nobj << /Kids [3 0 R] >> endobj";
        assert_eq!(
            measure(&[&file(&[ROOT, (2, "<< /Kids [3 0 R] >>"), page]), &hidden[..]].concat()),
            None
        );
        // Text that cannot be read.
        let objects = [ROOT, (2, "<< /Kids [3 0 R] >>"), page];
        for more in [
            "trailer << /Root 1 0 R /Encrypt 9 0 R >>",
            "trailer%\n<</Encr#79pt<</V 1>>>>",
            "8 0 obj << /Type /XRef /Encrypt 9 0 R >>\nstream\n\nendstream endobj",
        ] {
            assert_eq!(measure(&file(&objects)), Some((1, 0)));
            assert_eq!(measure(&[&file(&objects), more.as_bytes()].concat()), None, "{more}");
        }
        // A small stream that unpacks to much.
        let data = packed(&vec![b' '; 70 << 20]);
        let mut bytes = file(&[ROOT, (2, "<< /Kids [3 0 R] >>"), (3, "<< /Contents 4 0 R >>")]);
        bytes.extend_from_slice(b"4 0 obj << /Filter /FlateDecode >>\nstream\n");
        bytes.extend_from_slice(&data);
        assert_eq!(measure(&bytes), None);
    }

    /// A tree in which every node names the next one ten times has more leaves than atoms.
    #[test]
    fn a_tree_of_repeated_nodes_is_bounded() {
        let nodes: Vec<(u32, String)> = (2..40)
            .map(|number| {
                let kid = format!("{} 0 R ", number + 1);
                (number, format!("<< /Kids [{}] >>", kid.repeat(10)))
            })
            .collect();
        let mut objects: Vec<(u32, &str)> =
            nodes.iter().map(|(number, text)| (*number, &**text)).collect();
        objects.extend([ROOT, (40, "<< /Type /Page >>")]);
        assert_eq!(measure(&file(&objects)), None);
    }
}
