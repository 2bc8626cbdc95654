// Package reload owns when and how a relay that runs takes in its configuration again: on
// request, or when the file changes. The whole file is read and checked before anything
// changes; a file with a mistake changes nothing, and the last good one stays in force.
//
// It never decides which keys can change ([config.ReloadOf] does), and never touches a
// stream: it hands the configuration on. Certificates are not its affair.
//
// Limitations: one reload at a time; others wait. The text of a file does not show
// whether it is complete, so a file that is being written in place is read once it has
// stayed the same for a moment.
package reload

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
)

// Observer counts reloads, for metrics.
type Observer interface {
	// ConfigReloaded: a configuration was put in force, or refused, at a time.
	ConfigReloaded(ok bool, at time.Time)
}

// Options are what a Reloader works with.
type Options struct {
	// Load reads the configuration again, flags and all, and checks all of it.
	Load func() (*config.Config, error)
	// Running is the configuration in force, and Apply puts another one in force, which
	// is the same in all that needs a restart. On an error it has changed nothing.
	Running func() *config.Config
	Apply   func(*config.Config) error
	// Files reads files that the configuration names again, once it is in force, and returns
	// the keys of those whose content has changed and holds from now on; nil: there are none.
	Files func() []string
	// Log, and Observer (nil: nobody), hear of every reload.
	Log      *slog.Logger
	Observer Observer
	// Events is what operators are told; nil: nothing.
	Events *events.Ring
}

// Reloader takes in the configuration again. Its methods may be called from any goroutine.
type Reloader struct {
	options Options
	mu      sync.Mutex // one reload at a time
}

// New returns a Reloader. The configuration in force counts as loaded now.
func New(o Options) *Reloader {
	if o.Observer != nil {
		o.Observer.ConfigReloaded(true, time.Now())
	}
	return &Reloader{options: o}
}

// Outcome is what a reload changed.
type Outcome struct {
	// Changed are the keys whose new values are in force, and Waiting those that need a
	// restart and keep their old values.
	Changed, Waiting []config.Change
	// Files are the keys of files whose content has changed, and holds from now on.
	Files []string
}

// String says it in some lines, for whoever asked.
func (o Outcome) String() string {
	var b strings.Builder
	list := func(title string, changes []config.Change) {
		if len(changes) > 0 {
			fmt.Fprintf(&b, "%s:\n", title)
			for _, c := range changes {
				fmt.Fprintf(&b, "  %v\n", c)
			}
		}
	}
	list("in force", o.Changed)
	for _, key := range o.Files {
		fmt.Fprintf(&b, "read again, and in force: the file of %s\n", key)
	}
	list("needs a restart", o.Waiting)
	if b.Len() == 0 {
		return "nothing has changed\n"
	}
	return b.String()
}

// event tells operators which keys have changed. Their values may be nobody's business.
func (o Outcome) event() events.Event {
	e := events.Event{Kind: events.ConfigReloaded, Level: events.Info, Message: "nothing has changed"}
	var said []string
	if len(o.Changed) > 0 {
		said = append(said, "in force: "+keysOf(o.Changed))
	}
	if len(o.Files) > 0 {
		said = append(said, "read again: "+strings.Join(o.Files, ", "))
	}
	if len(o.Waiting) > 0 {
		e.Level, said = events.Warn, append(said, "needs a restart: "+keysOf(o.Waiting))
	}
	if len(said) > 0 {
		e.Message = strings.Join(said, "; ")
	}
	return e
}

// Reload reads the configuration and puts it in force, except for keys that need a
// restart. why names the trigger, for the log. An error lists all mistakes, with line
// and column; then nothing has changed.
func (r *Reloader) Reload(why string) (Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := r.reload()
	if r.options.Observer != nil {
		r.options.Observer.ConfigReloaded(err == nil, time.Now())
	}
	log := r.options.Log.With("trigger", why)
	if err != nil {
		log.Error("the configuration was not reloaded; the one before stays in force", "err", oneLine(err))
		r.options.Events.Publish(events.Event{Kind: events.ConfigRefused, Level: events.Error, Message: "the configuration before stays in force: " + oneLine(err)})
		return o, err
	}
	for _, c := range o.Changed {
		log.Info("configuration changed", "key", c.Key, "old", c.Old, "new", c.New)
	}
	for _, c := range o.Waiting {
		log.Warn("a changed key needs a restart; the old value stays in force", "key", c.Key, "old", c.Old, "new", c.New)
	}
	log.Info("configuration reloaded", "changed", len(o.Changed), "need_restart", len(o.Waiting))
	r.options.Events.Publish(o.event())
	return o, nil
}

func (r *Reloader) reload() (o Outcome, err error) {
	wanted, err := r.options.Load()
	if err != nil {
		return o, err
	}
	running := r.options.Running()
	next := wanted.Keeping(running)
	o.Changed, o.Waiting = running.Diff(next), next.Diff(wanted)
	if len(o.Waiting) > 0 {
		if err := next.Validate(); err != nil {
			return Outcome{}, &unfit{o.Waiting, err}
		}
	}
	if len(o.Changed) > 0 {
		if err := r.options.Apply(next); err != nil {
			return Outcome{}, err
		}
	}
	if r.options.Files != nil {
		o.Files = r.options.Files()
	}
	return o, nil
}

// unfit is a configuration that is valid, but not while some keys stay as they are.
type unfit struct {
	waiting []config.Change
	err     error
}

func (u *unfit) reason() string {
	return fmt.Sprintf("the configuration is valid, but not while what needs a restart (%s) is as it was: restart the relay to load it", keysOf(u.waiting))
}

func (u *unfit) Error() string { return u.reason() + "\n" + u.err.Error() }
func (u *unfit) Unwrap() error { return u.err }

func keysOf(changes []config.Change) string {
	var keys []string
	for _, c := range changes {
		keys = append(keys, c.Key)
	}
	return strings.Join(keys, ", ")
}

// oneLine is an error for a log: each mistake with its place and what to do, without the
// lines of the file.
func oneLine(err error) string {
	var fit *unfit
	if errors.As(err, &fit) {
		return fit.reason() + ": " + config.OneLine(err)
	}
	return config.OneLine(err)
}
