//! The answer of `sinter explain --json`.

use serde_json::Value;

/// The answer that names no cause.
pub const NONE: &str = "none";

/// A verdict.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The cause, as it was named.
    pub cause: String,
    /// All that was said.
    pub json: Value,
}

/// Reads it. Errors: it is not what `explain` prints.
pub fn read(said: &str) -> Result<Verdict, String> {
    let json: Value = serde_json::from_str(said).map_err(|error| format!("sinter explain: {error}: {said}"))?;
    let cause = json["verdict"]["cause"].as_str().ok_or_else(|| format!("sinter explain told no cause: {said}"))?;
    Ok(Verdict { cause: cause.to_string(), json })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_read() {
        let said = r#"{"seconds": 5.0, "operations": [], "others": [],
            "verdict": {"cause": "flush", "resource": "loop0", "gain": 0.4, "evidence": [], "next": ""}}"#;
        let verdict = read(said).expect("that is what explain says");
        assert_eq!(verdict.cause, "flush");
        assert_eq!(verdict.json["verdict"]["gain"], 0.4);
    }

    #[test]
    fn what_names_no_cause_is_an_error() {
        assert!(read("error: no daemon").is_err());
        assert!(read(r#"{"verdict": {"resource": "loop0"}}"#).is_err());
    }
}
