//! etcd's 64-bit ids as the API stores them: sixteen lowercase hex digits, because JSON numbers lose the low bits.

/// `0x1b5…` as `01b5…`.
pub fn format(id: u64) -> String {
    format!("{id:016x}")
}

/// The id behind a stored string; `None` for anything that is not a hexadecimal 64-bit number.
pub fn parse(id: &str) -> Option<u64> {
    // from_str_radix would take a sign.
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(id, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pads_with_zeros() {
        assert_eq!(format(0x01b5_6807_1e91_6c62), "01b568071e916c62");
        assert_eq!(format(0), "0000000000000000");
    }

    #[test]
    fn refuses_what_is_no_id() {
        for bad in ["", "+1", "-1", "0x1", "zz", "1b568071e916c6201"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parses_what_it_formats(id: u64) {
            prop_assert_eq!(parse(&format(id)), Some(id));
        }
    }
}
