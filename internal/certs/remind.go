package certs

import (
	"context"
	"crypto/x509"
	"log/slog"
	"slices"
	"time"
)

// reminder is what was said last of the validity of a file.
type reminder struct {
	cert    *x509.Certificate
	problem Problem
	at      time.Time
}

// tell mentions what is about to expire or has, once, and then from time to time. It
// reports whether something has begun or ceased to be valid.
func (f *Follower) tell(d *Followed, now time.Time) (changed bool) {
	if !d.mistakes.IsZero() && !now.Before(d.mistakes) {
		f.mistaken(d)
	}
	files := d.Files()
	for _, v := range validities(files, d.Material(), now) {
		p, last := problem(v.cert, now), d.told[v.role]
		same := last.cert != nil && sameCert(last.cert, v.cert) && last.problem == p
		if same && (p == "" || now.Sub(last.at) < f.options.Remind) {
			continue
		}
		changed = changed || !same
		d.told[v.role] = reminder{v.cert, p, now}
		if p == "" {
			continue
		}
		level := slog.LevelWarn
		if p == Expired {
			level = slog.LevelError
		}
		f.logger(d).Log(context.Background(), level, v.fault(now).Error(), "reason", string(p), "not_after", date(v.cert.NotAfter))
	}
	return changed
}

// mistaken mentions what is probably a mistake in files that are in use.
func (f *Follower) mistaken(d *Followed) {
	d.mistakes = time.Time{}
	for _, fault := range mistakes(d.Files(), d.Material()) {
		f.logger(d).Warn(fault.Error(), "reason", string(fault.Problem))
	}
}

func sameCert(a, b *x509.Certificate) bool { return a.Equal(b) }

// State is one file of those in use, for metrics and people.
type State struct {
	Hop      Hop
	Address  string // of the control plane; empty downstream
	Role     string // RoleCert or RoleCA
	NotAfter time.Time
	// Stale: the file has changed, and what it holds cannot be used; or the agent does not
	// answer.
	Stale bool
}

// stale is State.Stale, with mu held.
func (d *Followed) stale() bool {
	if d.agent != nil {
		return d.agent.trouble.told != ""
	}
	return d.trouble.told != ""
}

// States are the files in use that have an end, in the order in which they were given. No
// two are for the same: of those that follow each other the newer one counts.
func (f *Follower) States() (all []State) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.followed {
		files := d.Files()
		for _, v := range validities(files, d.Material(), now) {
			all = slices.DeleteFunc(all, func(s State) bool { return s.Hop == files.Hop && s.Address == files.Address && s.Role == v.role })
			all = append(all, State{files.Hop, files.Address, v.role, v.cert.NotAfter, d.stale()})
		}
	}
	return all
}

// Expired is when the certificate that is shown has expired; ok is false if it has not.
func (d *Followed) Expired(now time.Time) (at time.Time, ok bool) {
	leaf := d.Material().Leaf()
	if leaf == nil || !now.After(leaf.NotAfter) {
		return time.Time{}, false
	}
	return leaf.NotAfter, true
}
