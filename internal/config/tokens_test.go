package config

import (
	"strings"
	"testing"
)

// TestTokensNearMistakes: no message and no excerpt shows a token, whatever is wrong around it.
func TestTokensNearMistakes(t *testing.T) {
	for _, text := range []string{
		"upstream:\n  headers:\n    authorization: \"Bearer SECRET\n",
		"upstream: {headers: {authorization: Bearer SECRET, x: ]}}\n",
		"upstream:\n  headers:\n    authorization: Bearer: SECRET\n",
		"upstream:\n  headers:\n\tauthorization: Bearer SECRET\n",
		"upstream:\n  headers:\n    authorization: Bearer SECRET\n   x: y\n",
		"upstream:\n  header:\n    authorization: Bearer SECRET\n",
		"upstream:\n  header: {authorization: Bearer SECRET}\n",
		"upstream:\n  authorization: Bearer SECRET\n",
		"upstream:\n  headers: [authorization, Bearer SECRET]\n",
		"upstream:\n  headers: Bearer SECRET\n",
		"upstream:\n  headers:\n    - authorization: Bearer SECRET\n",
		"upstream:\n  headers: &a {authorization: Bearer SECRET}\n",
		"headers: {authorization: Bearer SECRET}\n",
	} {
		_, err := Parse("relay.yaml", []byte(text), nil)
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, set := range []string{"upstream.headers=Bearer SECRET", "headers.authorization=SECRET", "upstream={authorization: SECRET, header: SECRET}", "upstream.authorization=SECRET"} {
		if _, err := Parse("", nil, []string{set}); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("--set %s: %v", set, err)
		}
	}
}
