package twin

import (
	"fmt"
	"slices"
	"strings"
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

// versioned judges that the version of a full set is a function of what it lists, and differs where that differs
// (RECON-14).
func (c *Checker) versioned(who string, k kind, view, version string) {
	items := strings.Fields(view)
	slices.Sort(items)
	key := k.name + ": " + strings.Join(items, " ")
	if v, ok := c.versionOf[key]; ok && v != version {
		c.fail("RECON-14", "%s: the set %s has the version %s, had %s", who, key, version, v)
	}
	if o, ok := c.contentOf[k.name+version]; ok && o != key {
		c.fail("RECON-14", "%s: the set %s has the version of %s", who, key, o)
	}
	c.versionOf[key], c.contentOf[k.name+version] = version, key
}
