package config

import "slices"

// Authz says what clients may read (NODE-15).
type Authz struct {
	// RulesFile has the rules: which identity may present which node, and read which
	// names of which types. Rules only allow, and what none of them allows is denied.
	// It is read again when it changes; a file with a mistake changes nothing, and
	// without a valid file the relay does not start. Empty: clients may read
	// everything but Secrets, see groups.secrets. docs/security.md says how to write
	// it, and `xds-relay policy test` what a client may read.
	// Default: "".
	RulesFile string `yaml:"rules_file"`
}

// KeyEntries are the entries of all group keys in use, each once.
func (c *Config) KeyEntries() (entries []string) {
	for _, key := range c.keys() {
		for _, entry := range key {
			if !slices.Contains(entries, entry) {
				entries = append(entries, entry)
			}
		}
	}
	return entries
}
