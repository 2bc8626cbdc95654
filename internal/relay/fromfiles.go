package relay

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/origin"
	"github.com/xds-relay/xds-relay/internal/origin/files"
)

// FilesObserver hears of files that are served. Its method may be called from any goroutine.
type FilesObserver = files.Observer

// FromFiles is how the files of an address files:///path are read.
func FromFiles(c *config.Config, f cache.Fingerprint) files.Options {
	return files.Options{MaxBytes: int(c.Upstream.Files.MaxBytes), Descriptors: c.Upstream.Files.Descriptors, Fingerprint: f}
}

// CheckFromFiles reads the files that are named as control planes, and calls seen with what they hold.
func CheckFromFiles(c *config.Config, seen func(section, path string, s *files.Set)) error {
	var mistakes []error
	for _, e := range c.Upstream.AllEntries() {
		path, ok := config.FilesPath(e.Address)
		if !ok {
			continue
		}
		set, err := files.Load(path, FromFiles(c, cache.Fingerprint{}))
		if err == nil {
			seen(e.Section, path, set)
		} else if !c.Upstream.Files.Optional || !files.Missing(path) {
			mistakes = append(mistakes, c.Mistake(e.Section+".address", "", "%v", err))
		}
	}
	return config.Join(mistakes...)
}

// feed is a control plane within the process, and what fills it.
type feed interface {
	// Dial is the way to it.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// Close ends both.
	Close()
}

// newFeed makes the control plane of an entry. creds are towards what it reads from, if that is another process.
func (r *Relay) newFeed(c *config.Config, e config.Entry, creds credentials.TransportCredentials) (feed, error) {
	if path, ok := config.FilesPath(e.Address); ok {
		return r.feedFromFiles(c, e.Address, path)
	}
	return r.feedFromREST(c, e, creds)
}

// filesFeed serves what is in files.
type filesFeed struct {
	*origin.Origin
	stop func()
}

// Close ends both.
func (f *filesFeed) Close() {
	f.stop()
	f.Origin.Close()
}

// feedFromFiles makes the control plane of an entry files:///path. It has what is there now.
func (r *Relay) feedFromFiles(c *config.Config, address, path string) (feed, error) {
	fingerprint, err := Fingerprint(c)
	if err != nil {
		return nil, err
	}
	o := origin.New(origin.Options{Name: address, Session: DownstreamConfig(c)})
	u := &c.Upstream.Files
	source, err := files.Open(path, files.Follow{
		Options: FromFiles(c, fingerprint), Poll: u.Poll, NoNotify: r.options.Follow.NoNotify, InPlace: u.ReloadOnCloseWrite, Optional: u.Optional,
		Log: r.log.With("component", "files"), Observer: r.options.Files, Loaded: func(s *files.Set) { o.Publish(worldOf(s)) },
	})
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("address: %w; xds-relay validate says more", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		source.Run(ctx)
	}()
	return &filesFeed{o, func() {
		cancel()
		<-done
	}}, nil
}

// worldOf is what files hold, as an Origin serves it.
func worldOf(s *files.Set) origin.World {
	w := make(origin.World, len(s.Resources))
	for t, set := range s.Resources {
		w[t] = make(map[string]*cache.Resource, len(set))
		for name, r := range set {
			w[t][name] = r.Resource
		}
	}
	return w
}
