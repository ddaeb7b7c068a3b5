use super::*;

const PAGE: Page<'_> = Page {
    title: "a <b> & \"c\"",
    styles: &["p { color: red }"],
    body: "<p>body</p>",
    scripts: &["const x = 1 < 2;"],
    connect: "'none'",
};

fn written(page: &Page<'_>) -> String {
    let mut out = Vec::new();
    let data = |out: &mut Vec<u8>| {
        json_block(out, "facts", &["</script><script>alert(1)</script>", "<!--", "\u{2028}'\"&"])?;
        binary_block(out, "columns", |out| out.write_all(&[0, 1, 254, 255]))
    };
    page.write(&mut out, data).expect("memory");
    String::from_utf8(out).expect("text")
}

#[test]
fn data_end_no_script() {
    let text = written(&PAGE);
    assert!(!text.contains("alert(1)<") && !text.contains("<!--") && !text.contains('\u{2028}'));
    // One end each of: two blocks of data, one script.
    assert_eq!(text.matches("</script>").count(), 3);
    let json = text.split("id=\"facts\">").nth(1).and_then(|rest| rest.split('<').next());
    let back: Vec<String> = serde_json::from_str(json.expect("a block")).expect("JSON");
    assert_eq!(back, ["</script><script>alert(1)</script>", "<!--", "\u{2028}'\"&"]);
    assert!(text.contains("id=\"columns\">AAH+/w==</script>"), "{text}");
    assert!(text.contains("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"), "{text}");
}

#[test]
fn policy_allows_the_embedded_texts_only() {
    let policy = PAGE.policy();
    // printf 'const x = 1 < 2;' | openssl dgst -sha256 -binary | base64
    assert!(
        policy.contains("script-src 'sha256-NNKGQM1m5HvagQ71AUfq9+bK1O5DptekP4MV7hC77aI=';"),
        "{policy}"
    );
    assert!(policy.starts_with("default-src 'none'; ") && policy.contains("connect-src 'none'"));
    assert!(!policy.contains("unsafe") && policy.matches("sha256").count() == 3, "{policy}");
    assert!(Page { scripts: &[], ..PAGE }.policy().contains("script-src 'none';"));
    assert!(written(&PAGE).contains(&policy));
}

#[test]
fn licences_have_their_whole_texts() {
    let text = licences();
    assert!(text.contains("Permission is hereby granted") && text.contains("Apache License"));
    assert!(!text.contains("<http"), "addresses in brackets are escaped");
}
