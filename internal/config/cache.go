package config

import "time"

// Cache bounds retention. What clients want is never evicted (H-18).
type Cache struct {
	// MaxLingeringNames is how many names of a type that nobody wants may stay
	// subscribed per group, the longest unwanted leaving first (UP-7). While the
	// control plane is away it is no bound for names that lead to something
	// (NODE-10).
	// Default: 10000.
	MaxLingeringNames int `yaml:"max_lingering_names"`

	// MaxUnaskedBytes bounds what a group keeps of resources that the control
	// plane sends although nobody has asked for them, the oldest going first.
	// Some servers send everything whatever they are asked for, and do not
	// repeat it when it is asked for later. All groups together keep four times
	// as much (UP-9).
	// Default: 64MiB.
	MaxUnaskedBytes Bytes `yaml:"max_unasked_bytes"`

	// Snapshot keeps the last known good state on disk.
	Snapshot Snapshot `yaml:"snapshot"`

	// MassRemovalGuard doubts a control plane that is just back and removes much.
	MassRemovalGuard MassRemovalGuard `yaml:"mass_removal_guard"`
}

// MassRemovalGuard holds back what would remove much of a type right after the
// connection to the control plane was made: a control plane that restarts with empty
// caches would else wipe the fleet (H-22). Meanwhile clients, new ones too, have what
// was there; additions and changes pass. What is held back is let go when the control
// plane says it again on another stream, when an operator asks for it (POST
// /guard/release), or when the time is up. It is seen in the log, in the metric
// cache_removals_held and in /resources.
type MassRemovalGuard struct {
	// Fraction of a type's resources above which a removal is held back, from 0 to
	// less than 1; 0.5 is a good value. 0 is off.
	// Default: 0.
	Fraction float64 `yaml:"fraction"`

	// Min is how many resources a removal takes away at least to be held back.
	// Default: 20.
	Min int `yaml:"min"`

	// Within is how long after its opening a stream is doubted.
	// Default: 60s.
	Within time.Duration `yaml:"within"`

	// Hold is how long removals are held back at most.
	// Default: 5m.
	Hold time.Duration `yaml:"hold"`
}

// Snapshot is the last known good state on disk. A relay that starts serves it until
// the control plane has answered; what a client already has is left alone until
// then (RECON-19).
type Snapshot struct {
	// Dir is the directory of the file, of this relay alone: nobody else may
	// write to it, its group neither. It is made if it is not there. If it
	// cannot be used, the relay says so and serves without. Empty means no
	// snapshot.
	// Default: "".
	Dir string `yaml:"dir"`

	// Interval is the least time between two writes. It writes when something
	// has changed, and when it stops; what changed since the last write is lost
	// in a crash, and comes from the control plane again.
	// Default: 5s.
	Interval time.Duration `yaml:"interval"`

	// MaxAge is how old a snapshot may be for its contents to be served, from
	// when a control plane last answered. 0 means any age.
	// Default: 0s.
	MaxAge time.Duration `yaml:"max_age"`

	// KeyFile is a file of exactly 32 bytes, not readable for everybody, with
	// which the snapshot is encrypted (AES-256-GCM). Without it Secrets are not
	// in the snapshot; other resources are in it as they came, and with them
	// keys that a control plane has put into a Listener or Cluster.
	// Default: "".
	KeyFile string `yaml:"key_file"`

	// ExcludeTypes lists further types, as type URLs or short names, that are
	// not in the snapshot.
	// Default: [].
	ExcludeTypes []string `yaml:"exclude_types"`
}
