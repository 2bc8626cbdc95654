package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/reload"
)

// reloading reads the configuration again on SIGHUP, on a call of the Reloader and, with
// reload_on_change, when its file changes.
type reloading struct {
	*reload.Reloader
	hup    chan os.Signal
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// hangUps are SIGHUPs from now on, which end the process no more.
func hangUps() chan os.Signal {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	return hup
}

// startReloading begins with the configuration that the relay runs with. load reads it
// again, flags and all; file is where it is, or empty.
func startReloading(r *relay.Relay, file string, load func() (*config.Config, error), hup chan os.Signal, log *logging.Log, o reload.Observer, ring *events.Ring) *reloading {
	ctx, cancel := context.WithCancel(context.Background())
	l := &reloading{hup: hup, cancel: cancel}
	l.Reloader = reload.New(reload.Options{
		Load: func() (*config.Config, error) {
			c, err := load()
			if err != nil {
				return nil, err
			}
			if c.Blank() && !r.Config().Blank() {
				// Somebody is writing it, or the disk is full: its defaults are not what was meant.
				return nil, &config.Error{File: file, Msg: "the file sets nothing, and would be read as all defaults", Hint: "write the configuration again, or restart the relay if defaults are meant"}
			}
			errs := []error{relay.Check(c), c.CheckHeaderFiles()}
			if c.Cache.Snapshot.Dir != r.Config().Cache.Snapshot.Dir {
				errs = append(errs, relay.CheckSnapshotDir(c)) // the present one may have failed, and only this waits for it
			}
			return c, config.Join(errs...)
		},
		Running: r.Config,
		Apply: func(c *config.Config) error {
			was := r.Config().Log
			if err := r.Reconfigure(c); err != nil {
				return err
			}
			if c.Log != was {
				setLog(log, c.Log)
			}
			return nil
		},
		Files: func() (changed []string) {
			if r.ReadRules() {
				changed = append(changed, "authz.rules_file")
			}
			return changed
		},
		Log: log.Logger, Observer: o, Events: ring,
	})
	l.work.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				_, _ = l.Reload("SIGHUP") // the log has it
			}
		}
	})
	if r.Config().ReloadOnChange && file != "" {
		l.work.Go(func() {
			w := reload.NewWatch(file, log.Logger)
			w.Known = r.Config().FileText() // it may have changed while the relay started
			w.Run(ctx, func() {
				_, _ = l.Reload("file change") // the log has it
			})
		})
	}
	return l
}

// ask reloads for a caller over HTTP, who may not be allowed to read the file: the answer
// gives the place of each mistake, and not the line itself.
func (l *reloading) ask() (string, error) {
	o, err := l.Reload("POST /-/reload")
	var mistakes []string
	for _, e := range config.All(err) {
		mistakes = append(mistakes, e.Brief())
	}
	if len(mistakes) > 0 {
		err = errors.New(strings.Join(mistakes, "\n"))
	}
	return o.String(), err
}

// stop ends it; a SIGHUP is then ignored. It waits a second at most for a reload that is under way.
func (l *reloading) stop() {
	l.cancel()
	still := make(chan struct{})
	go func() {
		defer close(still)
		l.work.Wait()
	}()
	select {
	case <-still:
	case <-time.After(time.Second): // it hangs while it reads a file
	}
}
