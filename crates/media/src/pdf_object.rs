//! The objects of a PDF file, read one token after the other (ISO 32000-1, sections 7.2 and 7.3).

/// Nesting of arrays and dictionaries.
const MAX_DEPTH: usize = 64;

/// Facts of one object. Fields of inner dictionaries count as its own: what is found is at least what
/// a reader finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PdfObject {
    /// Children of a node of the page tree, and the number of those that stand in the node itself.
    pub(super) kids: Vec<u32>,
    pub(super) direct_kids: u64,
    pub(super) has_kids: bool,
    /// Declared number of pages.
    pub(super) count: u64,
    /// Roots of page trees.
    pub(super) roots: Vec<u32>,
    /// Streams of a page.
    pub(super) contents: Vec<u32>,
    /// Members of an object that is an array.
    pub(super) members: Vec<u32>,
    /// True if the object is a drawing that pages share.
    pub(super) is_form: bool,
    /// Position of the first object in a stream of objects.
    pub(super) first: Option<u64>,
    /// Number of filters that inflate, and of all others.
    pub(super) flate_filters: u32,
    pub(super) other_filters: u32,
    /// True if the object tells that the file is encrypted.
    pub(super) is_encrypted: bool,
    /// Streams that map the codes of a font to letters.
    pub(super) letter_maps: Vec<u32>,
    /// Bytes of the texts that a reader takes for what is drawn (ISO 32000-1, section 14.9.4).
    pub(super) spoken: u64,
    /// Position of the stream's data.
    pub(super) stream: Option<usize>,
}

enum PdfToken<'a> {
    Name(&'a [u8]),
    Number(u64),
    /// A text of so many bytes.
    Text(usize),
    Open(PdfBracket),
    Close,
    Word(&'a [u8]),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PdfBracket {
    Array,
    Dictionary,
}

struct PdfLexer<'a> {
    file: &'a [u8],
    at: usize,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, 0 | b'\t' | b'\n' | 0x0c | b'\r' | b' ')
}

fn is_regular(byte: u8) -> bool {
    !is_space(byte) && !b"()<>[]{}/%".contains(&byte)
}

impl<'a> PdfLexer<'a> {
    fn peek(&self) -> Option<u8> {
        self.file.get(self.at).copied()
    }

    fn take_while(&mut self, is_wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.file.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| !is_wanted(*byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    /// Skips a text in parentheses, which nest. Returns its length.
    fn skip_text(&mut self) -> usize {
        let begin = self.at;
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'(' => depth += 1,
                b')' if depth <= 1 => break,
                b')' => depth -= 1,
                _ => {}
            }
        }
        self.at - begin
    }

    fn next(&mut self) -> Option<PdfToken<'a>> {
        loop {
            self.take_while(is_space);
            let next = self.file.get(self.at + 1).copied();
            match self.peek()? {
                b'%' => drop(self.take_while(|byte| byte != b'\n' && byte != b'\r')),
                b'(' => return Some(PdfToken::Text(self.skip_text())),
                b'<' if next == Some(b'<') => {
                    self.at += 2;
                    return Some(PdfToken::Open(PdfBracket::Dictionary));
                }
                b'<' => {
                    let digits = self.take_while(|byte| byte != b'>').len();
                    self.at += 1;
                    return Some(PdfToken::Text(digits));
                }
                b'>' if next == Some(b'>') => {
                    self.at += 2;
                    return Some(PdfToken::Close);
                }
                b'[' => {
                    self.at += 1;
                    return Some(PdfToken::Open(PdfBracket::Array));
                }
                b']' => {
                    self.at += 1;
                    return Some(PdfToken::Close);
                }
                b'/' => {
                    self.at += 1;
                    return Some(PdfToken::Name(self.take_while(is_regular)));
                }
                byte if is_regular(byte) => {
                    let word = self.take_while(is_regular);
                    let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
                    return Some(number.map_or(PdfToken::Word(word), PdfToken::Number));
                }
                _ => self.at += 1,
            }
        }
    }
}

/// Returns a name without its escapes, such as `#61` for `a`.
fn plain_name(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [byte, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *byte == b'#');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                plain.push(code);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                plain.push(*byte);
                rest = tail;
            }
        }
    }
    plain
}

impl PdfObject {
    /// Reads the object at a position; `None` if it cannot be read. Sets the position behind it. The
    /// value of an object inside a stream of objects has no end mark.
    pub(super) fn read(file: &[u8], at: &mut usize, is_packed: bool) -> Option<Self> {
        let mut lexer = PdfLexer { file, at: *at };
        let object = Self::read_tokens(&mut lexer, is_packed);
        *at = lexer.at.min(file.len());
        object
    }

    fn read_tokens(lexer: &mut PdfLexer<'_>, is_packed: bool) -> Option<Self> {
        let mut object = Self::default();
        // Open brackets, each with the key that it is the value of.
        let mut open: Vec<(PdfBracket, Vec<u8>)> = Vec::new();
        let (mut key, mut wants_key) = (Vec::new(), false);
        let mut numbers = [0; 2];
        loop {
            let Some(token) = lexer.next() else { return open.is_empty().then_some(object) };
            let mut is_value = true;
            match token {
                PdfToken::Open(bracket) => {
                    if open.len() >= MAX_DEPTH {
                        return None;
                    }
                    object.open(&key, bracket);
                    open.push((bracket, key.clone()));
                    wants_key = bracket == PdfBracket::Dictionary;
                    is_value = false;
                }
                PdfToken::Close => key = open.pop()?.1,
                PdfToken::Name(name) if wants_key => {
                    key = plain_name(name);
                    wants_key = false;
                    is_value = false;
                }
                PdfToken::Name(name) => object.set_name(&key, &plain_name(name)),
                PdfToken::Number(number) => {
                    object.set_number(&key, number);
                    numbers = [numbers[1], number];
                }
                PdfToken::Text(length) => object.add_text(&key, length),
                PdfToken::Word(b"R") => object.add_reference(&key, u32::try_from(numbers[0]).ok()?),
                PdfToken::Word(b"stream") if open.is_empty() => {
                    let rest = lexer.file.get(lexer.at..).unwrap_or_default();
                    let skipped = match rest {
                        [b'\r', b'\n', ..] => 2,
                        [b'\r' | b'\n', ..] => 1,
                        _ => 0,
                    };
                    object.stream = Some(lexer.at + skipped);
                    return Some(object);
                }
                PdfToken::Word(b"endobj" | b"obj") => return Some(object),
                // `true`, `false`, `null`, or a number with a sign or a point.
                PdfToken::Word(_) => {}
            }
            if is_value {
                wants_key = open.last().is_some_and(|(own, _)| *own == PdfBracket::Dictionary);
                if is_packed && open.is_empty() {
                    return Some(object);
                }
            }
        }
    }

    fn open(&mut self, key: &[u8], bracket: PdfBracket) {
        self.is_encrypted |= key == b"Encrypt";
        if key == b"Kids" {
            self.has_kids = true;
            self.direct_kids += u64::from(bracket == PdfBracket::Dictionary);
        }
    }

    fn set_name(&mut self, key: &[u8], name: &[u8]) {
        match (key, name) {
            (b"Subtype", b"Form") => self.is_form = true,
            (b"Filter", b"FlateDecode" | b"Fl") => self.flate_filters += 1,
            (b"Filter", _) => self.other_filters += 1,
            _ => {}
        }
    }

    fn add_text(&mut self, key: &[u8], length: usize) {
        if key == b"ActualText" {
            self.spoken = self.spoken.saturating_add(length as u64);
        }
    }

    fn set_number(&mut self, key: &[u8], number: u64) {
        match key {
            b"Count" => self.count = self.count.max(number),
            b"First" => self.first = self.first.or(Some(number)),
            b"Predictor" if number > 1 => self.other_filters += 1,
            _ => {}
        }
    }

    fn add_reference(&mut self, key: &[u8], number: u32) {
        match key {
            b"Kids" => {
                self.has_kids = true;
                self.kids.push(number);
            }
            b"Pages" => self.roots.push(number),
            b"Contents" => self.contents.push(number),
            b"Encrypt" => self.is_encrypted = true,
            b"ToUnicode" => self.letter_maps.push(number),
            // Values that stand elsewhere are not looked up.
            b"Filter" | b"DecodeParms" | b"First" => self.other_filters += 1,
            b"" => self.members.push(number),
            _ => {}
        }
    }
}
