package certs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/symlinks"
)

// Options are how files are followed. What is zero is as [Defaults] has it.
type Options struct {
	// Poll is how often files are read without a report of a change.
	Poll time.Duration
	// Settle is how long after a change they are read: most changes are of several.
	Settle time.Duration
	// Retry is how soon files that cannot be used are read again; the wait doubles up to
	// Poll. Persist is how long that goes on before it is logged.
	Retry, Persist time.Duration
	// Remind is how often a certificate that is about to expire, or has, is mentioned.
	Remind time.Duration
	// NoNotify does without the system's help, as on a file system that has none.
	NoNotify bool

	// Log and Observer hear of changes; nil: nobody is.
	Log      *slog.Logger
	Observer Observer
	// Events is what operators are told; nil: nothing.
	Events *events.Ring
	// Changed is called when other files are in use, and when a certificate has begun or
	// ceased to be valid; nil: nobody is. It must not call the Follower.
	Changed func()
}

// Observer counts changes of files by their result. Its method may be called from any
// goroutine.
type Observer interface {
	// CertificatesReloaded: files have changed, and are in use, or cannot be used.
	CertificatesReloaded(ok bool)
}

type nobody struct{}

func (nobody) CertificatesReloaded(bool) {}

// Defaults are the options of a relay.
func Defaults() Options {
	return Options{Poll: time.Minute, Settle: 50 * time.Millisecond, Retry: 100 * time.Millisecond, Persist: 5 * time.Second, Remind: 24 * time.Hour}
}

func (o Options) filled() Options {
	d := Defaults()
	for _, f := range []struct {
		set     *time.Duration
		without time.Duration
	}{{&o.Poll, d.Poll}, {&o.Settle, d.Settle}, {&o.Retry, d.Retry}, {&o.Persist, d.Persist}, {&o.Remind, d.Remind}} {
		if *f.set == 0 {
			*f.set = f.without
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return o
}

// Follower keeps files up to date while Run runs. Its methods may be called from any
// goroutine.
type Follower struct {
	options Options
	wake    chan struct{} // files were added

	mu       sync.Mutex // never held to read a file
	followed []*Followed
	agents   map[string]*agent // by address
}

// NewFollower returns one that follows nothing yet.
func NewFollower(o Options) *Follower {
	return &Follower{options: o.filled(), wake: make(chan struct{}, 1), agents: make(map[string]*agent)}
}

// Followed are files that are kept up to date.
type Followed struct {
	follower *Follower
	agent    *agent // nil: it is files
	now      atomic.Pointer[loaded]

	// Guarded by Follower.mu.
	files   Files // that are looked at
	trouble trouble
	told    map[string]reminder // by role
	// mistakes is when mistakes in the files in use are logged: files that change
	// one after the other do not fit together for a moment. Zero: they have been
	// logged.
	mistakes time.Time
}

// loaded is the material in use, and the files it was read from.
type loaded struct {
	files    Files
	material *Material
}

// trouble is the state of files that cannot be used.
type trouble struct {
	fault error     // nil: they can
	since time.Time // the first of several failures in a row
	again time.Time // when they are read again
	wait  time.Duration
	told  string // what was said of it last
	at    time.Time
}

// Follow loads files; Run keeps them up to date. An error is Load's. What an agent is to
// send is not awaited: until then the material has no certificate.
func (f *Follower) Follow(files Files) (*Followed, error) {
	m, err := Load(files)
	if err != nil {
		return nil, err
	}
	d := &Followed{follower: f, files: files, told: make(map[string]reminder)}
	d.now.Store(&loaded{files, m})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followed = append(f.followed, d)
	if files.Agent != "" {
		f.join(d)
	}
	f.tell(d, time.Now())
	f.mistaken(d)
	f.poke()
	return d, nil
}

// Material is the material in use.
func (d *Followed) Material() *Material { return d.now.Load().material }

// Files are those that Material was read from.
func (d *Followed) Files() Files { return d.now.Load().files }

// Switch follows other files from now on. An error is Load's, and changes nothing. An agent
// stays the same, and so do the trust domains.
func (d *Followed) Switch(files Files) error {
	m, err := Load(files)
	if err != nil {
		return err
	}
	f := d.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.agent != nil {
		m = d.Material()
	}
	d.files, d.trouble = files, trouble{}
	d.now.Store(&loaded{files, m})
	f.tell(d, time.Now())
	f.mistaken(d)
	f.poke()
	return nil
}

// Close stops following. What was read last stays.
func (d *Followed) Close() {
	f := d.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followed = slices.DeleteFunc(f.followed, func(other *Followed) bool { return other == d })
	f.poke() // its agent may be nobody's now
}

func (f *Follower) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run looks at all files whenever one may have changed, and from time to time, and listens
// to all agents, until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var n *notifier
	defer func() { n.close() }()
	var agents sync.WaitGroup
	defer agents.Wait()
	for {
		names := f.names()
		if n == nil && len(names) > 0 && !f.options.NoNotify {
			n = newNotifier(f.options.Log)
		}
		select {
		case <-f.wake: // for what is seen now
		default:
		}
		n.watch(names) // before they are read, so that what comes after it is heard
		f.watchAgents(ctx, &agents)
		f.look()
		if !f.await(ctx, n) {
			return
		}
	}
}

// await returns when files are to be looked at again; false if ctx has ended.
func (f *Follower) await(ctx context.Context, n *notifier) bool {
	timer := time.NewTimer(time.Until(f.due(time.Now())))
	defer timer.Stop()
	for settling := false; ; {
		heard := false
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-f.wake:
			heard = true
		case e := <-n.events():
			heard = n.concerns(e)
		case err := <-n.errors():
			f.options.Log.Debug("watching certificate files", "err", err)
			heard = true // what was missed is unknown
		}
		if heard && !settling {
			settling = true
			timer.Reset(f.options.Settle)
		}
	}
}

// names are all names that the content of the files depends on.
func (f *Follower) names() map[string]bool {
	names := make(map[string]bool)
	for _, files := range f.watched() {
		for _, path := range []string{files.Cert, files.Key, files.CA} {
			if path == "" {
				continue
			}
			for _, name := range symlinks.Steps(path) {
				names[name] = true
			}
		}
	}
	return names
}

// watched are the files that are read from disk.
func (f *Follower) watched() map[*Followed]Files {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[*Followed]Files, len(f.followed))
	for _, d := range f.followed {
		if d.agent == nil {
			all[d] = d.files
		}
	}
	return all
}

// look reads all files, and puts changed ones to use if they are good.
func (f *Follower) look() {
	changed := false
	for d, files := range f.watched() {
		m, err := Load(files)
		if err == nil && m.sum != d.Material().sum && changing(files, m) {
			f.poke() // what was read may be of two versions, that fit by chance
			continue
		}
		f.mu.Lock()
		if slices.Contains(f.followed, d) && d.files.Equal(files) {
			changed = f.take(d, m, err, time.Now()) || changed
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	f.silent(time.Now())
	for _, d := range f.followed {
		changed = f.tell(d, time.Now()) || changed
	}
	f.mu.Unlock()
	if changed {
		f.options.Changed()
	}
}

// changing: files are not any more as they were just read.
func changing(files Files, m *Material) bool {
	again, err := Load(files)
	return err != nil || again.sum != m.sum
}

// take takes in what was read.
func (f *Follower) take(d *Followed, m *Material, err error, now time.Time) (changed bool) {
	old := d.Material()
	if err == nil && m.sum == old.sum {
		if d.trouble.told != "" {
			f.logger(d).Info("certificate files can be used again, with the same content as before")
		}
		d.trouble = trouble{}
		return false
	}
	if err == nil {
		err = worse(d.files, m, old, now)
	}
	if err != nil {
		f.fail(d, err, now)
		return false
	}
	d.trouble = trouble{}
	d.now.Store(&loaded{d.files, m})
	log := f.logger(d)
	if leaf := m.Leaf(); leaf != nil {
		log = log.With("certificate", nameOf(leaf), "serial", serialOf(leaf), "not_after", date(leaf.NotAfter))
	}
	log.Info("certificates reloaded; new connections use them", "changed", difference(old, m))
	f.options.Observer.CertificatesReloaded(true)
	f.options.Events.Publish(events.Event{Kind: events.CertificatesReloaded, Level: events.Info, ControlPlane: d.files.Address, Message: d.files.Section + ": new connections use the new " + difference(old, m)})
	d.mistakes = now.Add(f.options.Persist)
	return true
}

// worse: the new certificate is not valid at this time, and the one in use is.
func worse(f Files, m, old *Material, now time.Time) error {
	unfit := func(m *Material) (faults []error) {
		for _, v := range validities(f, m, now) {
			if p := problem(v.cert, now); p == Expired || p == NotYetValid {
				faults = append(faults, v.fault(now))
			}
		}
		return faults
	}
	if faults := unfit(m); len(faults) > len(unfit(old)) {
		return errors.Join(faults...)
	}
	return nil
}

// fail notes that files cannot be used, and logs it if that goes on.
func (f *Follower) fail(d *Followed, err error, now time.Time) {
	if d.agent != nil {
		f.away(d.agent, err, now)
		return
	}
	t := &d.trouble
	switch {
	case t.fault == nil:
		t.since, t.wait = now, f.options.Retry
	case !now.Before(t.again): // otherwise a change was heard of, and each of many would double it
		t.wait = min(2*t.wait, f.options.Poll)
	}
	t.fault, t.again = err, now.Add(t.wait)
	text := faultText(err)
	if now.Sub(t.since) < f.options.Persist || t.told == text || t.told != "" && now.Sub(t.at) < f.options.Persist {
		return
	}
	t.told, t.at = text, now
	f.logger(d).Warn("certificate files cannot be used; the last good ones stay", "err", text, "since", date(t.since))
	f.options.Observer.CertificatesReloaded(false)
	f.options.Events.Publish(events.Event{Kind: events.CertificatesRefused, Level: events.Warn, ControlPlane: d.files.Address, Message: d.files.Section + ": the files cannot be used, and the last good ones stay: " + text})
}

// faultText is an error in one line.
func faultText(err error) string {
	faults := Faults(err)
	if len(faults) == 0 {
		return err.Error()
	}
	text := faults[0].Error()
	for _, fault := range faults[1:] {
		text += "; " + fault.Error()
	}
	return text
}

// difference names the files in which two versions differ.
func difference(a, b *Material) string {
	certs := !slices.EqualFunc(a.Chain, b.Chain, sameCert)
	cas := !slices.EqualFunc(a.Authorities, b.Authorities, sameCert)
	switch {
	case certs && cas:
		return "certificate and authorities"
	case certs:
		return "certificate"
	case cas:
		return "authorities"
	}
	return "nothing but how they are written"
}

func (f *Follower) logger(d *Followed) *slog.Logger {
	log := f.options.Log.With("section", d.files.Section)
	if d.files.Address != "" {
		log = log.With("address", d.files.Address)
	}
	return log
}

// due is when files are polled next.
func (f *Follower) due(now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := now.Add(f.options.Poll)
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	for _, a := range f.agents {
		sooner(a.silentFrom(f.options.Persist))
	}
	for _, d := range f.followed {
		if t := d.trouble; t.fault != nil && t.again.Before(next) { // or past, if reading took long
			next = t.again
		}
		sooner(d.mistakes)
		for _, v := range validities(d.files, d.Material(), now) {
			for _, t := range []time.Time{v.cert.NotBefore, expiringFrom(v.cert), v.cert.NotAfter.Add(1)} {
				sooner(t)
			}
		}
	}
	return next
}
