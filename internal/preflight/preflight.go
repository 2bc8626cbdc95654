// Package preflight owns what xds-relay check does: it tries the things that a relay with
// a configuration would need, one after the other, and gives a hint for each that does not
// work. It talks to the real control planes as the relay would, with its node, headers and
// certificates, and asks them for all clusters and listeners once.
//
// It never listens, never writes a file, and acknowledges every response, so that the
// control plane sees a client that comes and goes. It counts resources and does not
// look into them.
//
// Limitations: a control plane that serves some nodes only is asked as the relay's own
// node (upstream.node), not as its clients. dns:// addresses are resolved by the system,
// whatever resolver they name.
package preflight

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/descriptors"
	"github.com/xds-relay/xds-relay/internal/origin/files"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// State is how a check went.
type State string

// The values of State.
const (
	OK   State = "ok"
	Note State = "note" // it works, and is worth a look
	Fail State = "FAIL"
)

// Result is one line.
type Result struct {
	State State
	// Name is what was checked, Text what was found, and Hint, which may be empty, what to
	// do about it.
	Name, Text, Hint string
}

// String is the line, with the hint on one of its own.
func (r Result) String() string {
	text := fmt.Sprintf("%-4s  %-32s %s", r.State, r.Name, r.Text)
	if r.Hint != "" {
		text += "\n      hint: " + r.Hint
	}
	return text
}

// Options bound the checks. Zero values are the usual ones.
type Options struct {
	// Within is how long each step may take, Settle how long nothing must come for an
	// answer to count as complete. 5 s and 300 ms.
	Within, Settle time.Duration
	// Soon is how long before its end a certificate is worth a note; 7 days.
	Soon time.Duration
	// Now is the time; nil: time.Now.
	Now func() time.Time
}

// checker runs the checks of one configuration.
type checker struct {
	config *config.Config
	o      Options
	tell   func(Result)
	failed int
}

// Run checks everything and reports each result as soon as it is known. It returns the
// number of failures. The configuration must be valid.
func Run(ctx context.Context, c *config.Config, o Options, tell func(Result)) (failed int) {
	if o.Within == 0 {
		o.Within = 5 * time.Second
	}
	if o.Settle == 0 {
		o.Settle = 300 * time.Millisecond
	}
	if o.Soon == 0 {
		o.Soon = 7 * 24 * time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	k := &checker{config: c, o: o, tell: tell}
	k.ok("configuration", "it is valid")
	k.certificates(ctx)
	for _, s := range c.Upstream.Sources() {
		for _, e := range s.Entries {
			k.entry(ctx, s, e)
		}
	}
	k.openFiles()
	k.snapshotDir()
	return k.failed
}

func (k *checker) ok(name, format string, args ...any) {
	k.tell(Result{State: OK, Name: name, Text: fmt.Sprintf(format, args...)})
}

func (k *checker) note(name, hint, format string, args ...any) {
	k.tell(Result{State: Note, Name: name, Text: fmt.Sprintf(format, args...), Hint: hint})
}

func (k *checker) fail(name, hint, format string, args ...any) {
	k.failed++
	k.tell(Result{State: Fail, Name: name, Text: fmt.Sprintf(format, args...), Hint: hint})
}

// entry checks one control plane, by whatever it is reached.
func (k *checker) entry(ctx context.Context, s config.Source, e config.Entry) {
	path, files := config.FilesPath(e.Address)
	rest, _ := e.OverREST()
	switch {
	case files:
		k.fromFiles(e.Section, path)
	case rest:
		k.overREST(ctx, s, e)
	default:
		k.controlPlane(ctx, s, e)
	}
}

// fromFiles: the files can be used, and what they hold.
func (k *checker) fromFiles(section, path string) {
	name := section + ": files"
	set, err := files.Load(path, relay.FromFiles(k.config, cache.Fingerprint{}))
	switch {
	case err != nil && k.config.Upstream.Files.Optional && files.Missing(path):
		k.note(name, "", "%s does not exist; until it does, nothing is served from it", path)
		return
	case err != nil:
		k.fail(name, "", "%v", err)
		return
	}
	var held []string
	for _, t := range set.Types() {
		held = append(held, fmt.Sprintf("%d %s", len(set.Resources[t]), files.Kind(t)))
	}
	k.ok(name, "%s: %s", path, strings.Join(held, ", "))
}

// snapshotDir: there is a place for the snapshot.
func (k *checker) snapshotDir() {
	const name = "cache.snapshot.dir"
	dir := k.config.Cache.Snapshot.Dir
	if dir == "" {
		return
	}
	for _, e := range config.All(relay.CheckSnapshotDir(k.config)) {
		k.fail(name, e.Hint, "%s", e.Msg)
		return
	}
	k.ok(name, "%s can be written to", dir)
}

// fewFiles is how many open files are worth a note: each client takes one, and so does each
// connection to a control plane.
const fewFiles = 4096

func (k *checker) openFiles() {
	const name = "open files (ulimit -n)"
	limit := descriptors.Limit()
	room := relay.RoomFor(k.config, limit)
	switch {
	case limit == 0:
	case room.Warning != "":
		k.note(name, "", "%d: %d connections of clients. %s", limit, room.Most, room.Warning)
	case limit < fewFiles:
		k.note(name, "raise ulimit -n, or LimitNOFILE of its systemd unit", "%d: %d connections of clients, and more are closed", limit, room.Most)
	default:
		k.ok(name, "%d: %d connections of clients", limit, room.Most)
	}
}
