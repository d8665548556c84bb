use super::*;
use runtime::random::SplitMix;

fn token() -> Token {
    let addresses =
        ["10.0.0.5:7400", "[fd00::5]:7400", "store.example:1"].map(|text| text.parse().expect("an address"));
    let (cluster, ca) = (Uuid([0xc1; 16]), Hash::of(b"a CA"));
    let (addresses, name) = (addresses.to_vec(), "store".parse().expect("a name"));
    Token { cluster, ca, role: Role::Client, secret: Secret([0x5e; 16]), addresses, name }
}

/// The error of a text that is no token.
#[track_caller]
fn refused(text: &str) -> Error {
    text.parse::<Token>().expect_err(text)
}

#[test]
fn a_token_reads_back_also_in_capitals_and_with_space_around() {
    let text = token().to_text();
    assert!(text.starts_with("sinter1.") && text[8..].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
    for text in [text.clone(), text.to_uppercase(), format!(" {text}\r\n")] {
        assert_eq!(text.parse::<Token>().expect("whole"), token());
    }
    let one = Token { addresses: vec!["a:1".parse().expect("an address")], ..token() };
    assert_eq!(one.to_text().parse::<Token>().expect("whole"), one);
}

#[test]
fn a_token_that_was_cut_says_so() {
    let text = token().to_text();
    for at in 8..text.len() {
        let error = refused(&text[..at]);
        assert!(error.kind == Kind::Invalid && error.to_string().contains("cut short"), "{at}: {error}");
    }
    assert!(refused(&text[..text.len() - 3]).to_string().contains(": 3 of its"));
    for at in 0..8 {
        assert!(refused(&text[..at]).to_string().contains("this is no token"), "{at}");
        assert!(refused(&text[at + 1..]).to_string().contains("this is no token"), "{at}");
    }
}

#[test]
fn a_letter_that_is_wrong_is_noticed_wherever_it_stands() {
    let text = token().to_text();
    for at in 8..text.len() {
        for letter in "a7q".chars().filter(|letter| !text[at..].starts_with(*letter)) {
            let wrong = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
            assert_eq!(refused(&wrong).kind, Kind::Invalid, "{at}");
        }
        for letter in ['1', '0', ' ', '-', '\u{e4}'] {
            let wrong = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
            let error = refused(&wrong);
            let named = error.to_string().contains(&format!("`{letter}` at place {}", at + 1));
            assert!(named || at + 1 == text.len() && letter == ' ' || letter == '\u{e4}', "{at} {letter}: {error}");
        }
        let error = refused(&format!("{}a{}", &text[..at], &text[at..]));
        assert!(error.kind == Kind::Invalid, "{at}: {error}");
        let swapped = format!("{}{}{}{}", &text[..at - 1], &text[at..=at], &text[at - 1..at], &text[at + 1..]);
        if swapped != text {
            assert_eq!(swapped.parse::<Token>().map_err(|error| error.kind), Err(Kind::Invalid), "{at}");
        }
    }
    let middle = format!("{}{}{}", &text[..40], if &text[40..41] == "a" { "b" } else { "a" }, &text[41..]);
    assert!(refused(&middle).to_string().contains("its checksum differs"));
}

#[test]
fn other_texts_are_told_apart() {
    for (text, kind) in [
        ("", Kind::Invalid),
        ("hello", Kind::Invalid),
        ("sinter", Kind::Invalid),
        ("sinter1", Kind::Invalid),
        ("sinterX.aaaa", Kind::Invalid),
        ("sinter2.abcdefgh", Kind::Newer),
        ("sinter1.\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}", Kind::Invalid),
        ("sinter1.aaaaaaaa", Kind::Invalid),
    ] {
        assert_eq!(refused(text).kind, kind, "{text}");
    }
    assert!(refused(&format!("sinter1.{}", "a".repeat(100_000))).to_string().contains("too long"));
}

/// A text with these fields, and a length and a checksum that are right.
fn sealed(fields: &[u8]) -> String {
    let length = u16::try_from(fields.len() + 6).expect("short");
    let mut bytes = [&length.to_le_bytes(), fields].concat();
    bytes.extend(crc32c(&bytes).to_le_bytes());
    format!("{PREFIX}{}", letters().encode(&bytes))
}

#[test]
fn fields_that_this_version_does_not_know_are_a_newer_ones() {
    let text = token().to_text();
    let bytes = letters().decode(&text.as_bytes()[8..]).expect("letters");
    let fields = &bytes[2..bytes.len() - 4];
    assert_eq!(sealed(fields), text);
    let with = |at: usize, byte: u8| {
        let mut fields = fields.to_vec();
        fields[at] = byte;
        sealed(&fields)
    };
    // The role, no address, more than eight, a port that is none, a name that is none or too long, one byte more.
    let longer = sealed(&[fields, &[0]].concat());
    let (port, name) = (fields.len() - 7, fields.len() - 6);
    let wrong =
        [with(48, 3), with(65, 0), with(65, 9), with(port, b'x'), with(name, 0), with(name, 6), with(name + 1, b'/')];
    for text in wrong.into_iter().chain([longer, sealed(&[])]) {
        assert_eq!(refused(&text).kind, Kind::Newer);
    }
    let mut dice = SplitMix(1);
    for _ in 0..20_000 {
        let mut fields = fields.to_vec();
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(fields.len() as u64) as usize;
            fields[at] = dice.next() as u8;
        }
        fields.truncate(dice.below(2 * fields.len() as u64).max(1) as usize);
        let text = sealed(&fields);
        if let Ok(read) = text.parse::<Token>() {
            assert_eq!(read.to_text(), text, "a token has one text");
        }
    }
}

#[test]
fn noise_is_no_token() {
    let mut dice = SplitMix(7);
    for _ in 0..20_000 {
        let noise: String = (0..dice.below(300))
            .map(|_| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[dice.below(32) as usize]))
            .collect();
        assert!(noise.parse::<Token>().is_err() && format!("sinter1.{noise}").parse::<Token>().is_err());
    }
}

#[test]
fn addresses_have_a_host_and_a_port() {
    for good in ["a:1", "10.0.0.5:7400", "[::1]:65535", "store-1.example_x:80"] {
        assert_eq!(good.parse::<Address>().expect(good).to_string(), good);
    }
    let long = format!("{}:1", "a".repeat(258));
    for wrong in
        ["", "a", ":1", "a:", "a:0", "a:65536", "a:+1", "::1:7400", "[::1]", "[x]:1", "a b:1", "a\":1", long.as_str()]
    {
        assert_eq!(wrong.parse::<Address>().expect_err(wrong).kind, Kind::Invalid);
    }
}
