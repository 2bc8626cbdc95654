package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
)

// TestHardenedConfiguration: what docs/security.md recommends is valid, and there is nothing to say of it.
func TestHardenedConfiguration(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## A hardened configuration\n")
	_, after, found := strings.Cut(section, "```yaml\n")
	yaml, _, _ := strings.Cut(after, "```")
	if !found {
		t.Fatal("docs/security.md has no configuration")
	}
	c, err := config.Parse("docs/security.md", []byte(yaml), nil)
	if err != nil {
		t.Fatal(err)
	}
	if notes := c.Notes(); len(notes) > 0 {
		t.Errorf("validate says of it: %v", notes)
	}
}
