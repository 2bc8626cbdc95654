package relay

import (
	"errors"
	"io/fs"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/snapshot"
)

// Check says what keeps a relay from starting with a configuration that is valid by
// itself: files that cannot be read, do not hold what they should, or are open to others.
// All mistakes are reported, each with its place. It changes nothing.
func Check(c *config.Config) error {
	errs := []error{c.CheckFiles()}
	if path := c.Cache.Snapshot.KeyFile; path != "" {
		// What cannot be read has been reported.
		if err := snapshot.CheckKeyFile(path); err != nil && !unreadable(err) {
			errs = append(errs, c.Mistake("cache.snapshot.key_file", "the snapshot would be as good as in clear", "%q: %v", path, err))
		}
	}
	if _, err := LoadRules(c); err != nil {
		errs = append(errs, err)
	}
	return config.Join(errs...)
}

// CheckAll says in addition what a relay would start without, and do without for as long
// as it has to: files of headers, and a directory for the snapshot.
func CheckAll(c *config.Config) error {
	return config.Join(Check(c), c.CheckHeaderFiles(), CheckSnapshotDir(c))
}

// CheckSnapshotDir says why no snapshot can be kept where the configuration wants it.
func CheckSnapshotDir(c *config.Config) error {
	dir := c.Cache.Snapshot.Dir
	if dir == "" {
		return nil
	}
	if err := snapshot.Check(dir); err != nil {
		return c.Mistake("cache.snapshot.dir", "it has to be one that this user may write to, and nobody else", "%q cannot be used: %v", dir, err)
	}
	return nil
}

func unreadable(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path)
}
