package twin

import (
	"fmt"
	"slices"
)

// Versions that clients are sent.

// fingerprinted judges that versions are a function of content, and differ where contents differ.
func (c *Checker) fingerprinted(who string, k kind, name string, r content, aliases []string, version string) {
	key := fmt.Sprint(k.name, name, r.label, slices.Sorted(slices.Values(aliases)))
	if v, ok := c.versionOf[key]; ok && v != version {
		c.fail("RECON-2", "%s: %s=%s has the version %s, had %s", who, name, r.label, version, v)
	}
	if o, ok := c.contentOf[version]; ok && o != key {
		c.fail("RECON-1", "%s: %s has the version of %s", who, key, o)
	}
	c.versionOf[key], c.contentOf[version] = version, key
}
