package config

import "time"

// Cache bounds retention. What clients want is never evicted (H-18).
type Cache struct {
	// MaxLingeringNames is how many names that nobody wants may stay
	// subscribed per group, the longest unwanted leaving first (UP-7).
	// Default: 10000.
	MaxLingeringNames int `yaml:"max_lingering_names"`

	// Snapshot keeps the last known good state on disk.
	Snapshot Snapshot `yaml:"snapshot"`
}

// Snapshot is the last known good state on disk. A relay that starts serves it until
// the control plane has answered; what a client already has is left alone until
// then (RECON-19).
type Snapshot struct {
	// Dir is the directory of the file, which nobody else may write to; it is
	// made if it is not there. Empty means no snapshot.
	// Default: "".
	Dir string `yaml:"dir"`

	// Interval is the least time between two writes. It writes when something
	// has changed, and when it stops; what changed since the last write is lost
	// in a crash, and comes from the control plane again.
	// Default: 5s.
	Interval time.Duration `yaml:"interval"`

	// MaxAge is how old a snapshot may be for its contents to be served. 0 means
	// any age.
	// Default: 0s.
	MaxAge time.Duration `yaml:"max_age"`

	// KeyFile is a file of exactly 32 bytes with which the snapshot is encrypted
	// (AES-256-GCM). Without it Secrets are not in the snapshot; other resources
	// are in it as they came, and with them keys that a control plane has put
	// into a Listener or Cluster.
	// Default: "".
	KeyFile string `yaml:"key_file"`

	// ExcludeTypes lists further types, as type URLs or short names, that are
	// not in the snapshot.
	// Default: [].
	ExcludeTypes []string `yaml:"exclude_types"`
}
