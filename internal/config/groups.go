package config

// Groups says which clients share one upstream stream and its resources.
// Sharing is right only if the control plane's answers depend on nothing of
// the client's node but the fields of Key (NODE-5).
type Groups struct {
	// Key lists the node fields that tell groups apart: id, cluster,
	// locality.region, locality.zone, locality.sub_zone, user_agent_name,
	// metadata.<path>. Empty means one group for all clients (NODE-4).
	// Default: [].
	Key []string `yaml:"key"`

	// DefaultGroup admits a client whose first message has no node although
	// Key needs one, to a group of its own kind, instead of refusing it
	// (NODE-3).
	// Default: false.
	DefaultGroup bool `yaml:"default_group"`

	// ShareSecrets lets the clients of a group share Secrets like any other
	// type (NODE-6, H-23).
	// Default: false.
	ShareSecrets bool `yaml:"share_secrets"`

	// Max is how many groups, hence upstream streams, may exist (VALID-8).
	// Default: 1000.
	Max int `yaml:"max"`
}
