package files

import (
	"strings"
	"testing"
)

// secretIn are files in each format with a secret that has this private key.
func secretIn(json, text string) map[string]string {
	const of = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	return map[string]string{
		"a.json":  `{"resources": [{"@type": "` + of + `", "name": "s", "tls_certificate": {"private_key": ` + json + `}}]}`,
		"a.yaml":  "resources:\n- \"@type\": " + of + "\n  name: s\n  tls_certificate:\n    private_key: " + json + "\n",
		"a.txtpb": `resources { [` + of + `] { name: "s" tls_certificate { private_key ` + text + ` } } }`,
	}
}

// TestNoValues: what is wrong is said without the value, which may be a secret.
func TestNoValues(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no base64":       secretIn(`{"inline_bytes": "-----BEGIN canary!"}`, `{ inline_bytes: canary }`),
		"no string":       secretIn(`{"inline_string": 4.1e999999canary}`, `{ inline_string: 4.1canary }`),
		"another message": secretIn(`"canary"`, `: "canary"`),
		"a list":          secretIn(`{"inline_string": ["canary"]}`, `{ inline_string: ["canary", "canary"] }`),
		"an escape":       secretIn(`{"inline_string": "\canary"}`, `{ inline_string: "\canary" }`),
		"a quote within":  secretIn(`{"inline_string": "a"canary"}`, `{ inline_string: "a"canary" }`),
		"no end":          secretIn(`{"inline_string": "canary`, `{ inline_string: "canary`),
		"an alias":        secretIn("\n      inline_string: *canary", `{ inline_string: *canary }`),
		"a tag":           secretIn("\n      inline_string: !canary", `{ inline_string: !canary }`),
		"a bracket":       secretIn(`{inline_string: ]canary}`, `{ inline_string: ]canary }`),
		"a file name":     secretIn(`{"filename": "a", "inline_string": "canary"}`, `{ filename: "a" inline_string: "canary" }`),
		"a number":        secretIn(`{"inline_string": 31415canary926}`, `{ inline_string: 31415canary926 }`),
		"two lines":       secretIn("\n      inline_string: canary\n     canary: canary\n   canary", "{ inline_string: \"canary\ncanary\" }"),
	} {
		for file, text := range files {
			_, err := Load(write(t, map[string]string{file: text}), options())
			if err != nil && strings.Contains(err.Error(), "canary") || err == nil && file != "a.yaml" { // some are strings in YAML
				t.Errorf("%s in %s: it says %v", name, file, err)
			}
		}
	}
}
