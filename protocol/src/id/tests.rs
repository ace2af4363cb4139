//! What is a name and what is none, and that each is written as it is read.

use super::*;

#[test]
fn names_are_dns_labels() {
    for good in ["a", "mesh-controller", "n1", &"a".repeat(63)] {
        assert_eq!(good.parse::<NodeName>().unwrap().as_str(), good);
    }
    for bad in ["", "-a", "a-", "A", "a.b", "a/b", "a b", "ä", &"a".repeat(64)] {
        let error = bad.parse::<NodeName>().unwrap_err();
        assert_eq!(error.found, bad);
    }
}

#[test]
fn a_resource_id_reads_back_as_it_was_written() {
    for text in ["container:mesh-controller", "file:mesh-bus/nats.conf", "account:a"] {
        assert_eq!(text.parse::<ResourceId>().unwrap().to_string(), text);
    }
    for bad in ["mesh-controller", "pod:a", "file:a", "process:a/b", "container:", "file:a/.hidden"] {
        bad.parse::<ResourceId>().unwrap_err();
    }
}

#[test]
fn a_digest_is_sha256_in_lower_case() {
    let digest = Digest::of(b"");
    assert_eq!(digest.as_str(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(digest.as_str().parse::<Digest>().unwrap(), digest);
    digest.as_str().to_uppercase().parse::<Digest>().unwrap_err();
    digest.hex().parse::<Digest>().unwrap_err();
}

#[test]
fn a_later_holder_has_the_higher_token_even_when_the_revision_went_back() {
    let before = Token { epoch: 3, revision: 90 };
    let after = Token { epoch: 4, revision: 7 };
    assert!(after > before);
}
