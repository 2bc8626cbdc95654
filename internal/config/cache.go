package config

import "time"

// Cache bounds what the relay keeps. It never evicts resources that clients want
// (H-18).
type Cache struct {
	// MaxLingeringNames is how many names of a type that nobody wants may stay
	// subscribed per group, the longest unwanted leaving first (UP-7). While the
	// control plane is away, names that have a resource do not count (NODE-10).
	// 0: a name is unsubscribed when its last client gives it up.
	// Default: 10000.
	MaxLingeringNames int `yaml:"max_lingering_names"`

	// MaxUnaskedBytes bounds the resources that a group keeps although no
	// client has asked for them; the oldest go first. Some servers send
	// everything whatever the relay subscribes to, and do not repeat it when a
	// client asks later. All groups together keep at most four times as much
	// (UP-9).
	// Default: 64MiB.
	MaxUnaskedBytes Bytes `yaml:"max_unasked_bytes"`

	// Snapshot keeps the last known good state on disk.
	Snapshot Snapshot `yaml:"snapshot"`

	// MassRemovalGuard doubts a control plane that is just back and removes much.
	MassRemovalGuard MassRemovalGuard `yaml:"mass_removal_guard"`
}

// MassRemovalGuard holds back removals that take away much of a type right after the
// relay has connected: without it a control plane that restarts with empty caches
// wipes the fleet (H-22). Meanwhile clients, new ones too, keep being served the old
// resources; additions and changes pass. The relay carries out the removals when the
// control plane repeats them on another stream, when an operator asks for it (POST
// /guard/release), or when the time is up. The log, the metric cache_removals_held
// and /resources show them.
type MassRemovalGuard struct {
	// Fraction of a type's resources above which a removal is held back, from 0 to
	// less than 1; 0.5 is a good value. 0 is off.
	// Default: 0.
	Fraction float64 `yaml:"fraction"`

	// Min is the least number of resources that a held removal takes away.
	// Default: 20.
	Min int `yaml:"min"`

	// Within is how long after its opening the guard watches a stream.
	// Default: 60s.
	Within time.Duration `yaml:"within"`

	// Hold is how long removals are held back. Time without a stream to the control
	// plane does not count. A hold does not end while a new stream that was shown the
	// resources may still repeat their removal. If it has not within
	// timers.dne_timeout, the resources stay (H-22).
	// Default: 5m.
	Hold time.Duration `yaml:"hold"`
}

// Snapshot is the last known good state on disk. A relay that starts serves it until
// the control plane has answered; until then it neither replaces nor removes what a
// client already has (RECON-19).
type Snapshot struct {
	// Dir is the directory of the file. It belongs to this relay alone:
	// neither its group nor others may have write permission. The relay
	// makes it if it does not exist. If it cannot be used, the relay says so
	// and serves without a snapshot. Empty means no snapshot.
	// Default: "".
	Dir string `yaml:"dir"`

	// Interval is the least time between two writes. The relay writes when
	// something has changed, each minute while the control plane is alive and
	// something is wanted, and when it stops. A crash loses the changes since
	// the last write; the control plane sends them again.
	// Default: 5s.
	Interval time.Duration `yaml:"interval"`

	// MaxAge is how old a snapshot may be for its contents to be served, from
	// when a control plane was last known to be alive. The relay notes that each
	// minute, and when it stops; on a stream on which nothing comes it asks
	// for it with a health check. The age of what nobody wants any more is when it was
	// last subscribed. 0 means any age.
	// Default: 0s.
	MaxAge time.Duration `yaml:"max_age"`

	// KeepUnwanted is how long resources stay on disk that no client wants any
	// more, so that a client that comes back after a restart in an outage is
	// served. The relay subscribes to none of them, and serves them only after a
	// restart, until the control plane is there. 0: they go with the last client.
	// Default: 24h.
	KeepUnwanted time.Duration `yaml:"keep_unwanted"`

	// MaxBytes bounds the snapshot, and what is read of it. Resources that
	// nobody wants any more go first, the oldest of them before the others. What clients
	// want is written and read in any case; the log says so when it is
	// more than that.
	// Default: 1GiB.
	MaxBytes Bytes `yaml:"max_bytes"`

	// KeyFile is a file of exactly 32 bytes, not readable for everybody, with
	// which the snapshot is encrypted (AES-256-GCM). Without it Secrets are not
	// in the snapshot. Other resources are then in it in the clear, including
	// private keys that a control plane has put into a Listener or Cluster.
	// Default: "".
	KeyFile string `yaml:"key_file"`

	// ExcludeTypes lists further types, as type URLs or short names, that are
	// not in the snapshot.
	// Default: [].
	ExcludeTypes []string `yaml:"exclude_types"`
}
